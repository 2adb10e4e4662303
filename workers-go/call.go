package toolfleet

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"
)

const (
	maxResultBytes = 256 << 10
	previewBytes   = 8 << 10
)

// failed is the result of a call without a return value; its message is for the model.
func failed(kind, format string, values ...any) map[string]any {
	return map[string]any{"type": "failed", "kind": kind, "message": fmt.Sprintf(format, values...)}
}

// endings are what a model reads of a call that does not begin here, by the verdict.
var endings = map[string]string{
	"in_doubt":  "%s was interrupted: its effect may or may not have happened, and it was not run again.",
	"crashed":   "%s lost its worker in each of its deliveries.",
	"expired":   "The deadline of %s passed before it began.",
	"cancelled": "%s was cancelled before it began.",
}

// take does what judge has decided. It returns a result that ends the call at once, or whether the call is to be run.
func (w *Worker) take(d *delivery) (result map[string]any, isToRun bool) {
	verdict, reason := d.judge(w.seal, w.tools, float64(time.Now().UnixMilli())/1000, w.MaxMessageBytes)
	if (verdict == toRun || verdict == toClaim) && !d.isLooked && w.isCancelled(d) {
		verdict = "cancelled"
	}
	switch verdict {
	case toBury:
		w.bury(d, reason.Error())
		return nil, false
	case toPassOn:
		return w.passOn(d), false
	case toClaim:
		if !w.claim(d) {
			return nil, false
		}
	case toRun:
	default:
		return failed(verdict, endings[verdict], d.call.Tool), false
	}
	if err := w.tools[d.call.Tool].check(d.call.Arguments); err != nil {
		return failed("bad_arguments", "%s", err), false
	}
	return nil, true
}

// claim makes sure that this message, and no copy of it, runs a call that must not be repeated.
func (w *Worker) claim(d *delivery) bool {
	var mine bool
	leftS := d.call.DeadlineS - float64(time.Now().UnixMilli())/1000
	w.insist(func(conn redis.Conn) error {
		// Said again after a lost reply, our own claim is there.
		before, err := redis.String(conn.Do("SET", w.key("claim", d.call.CallID), d.entry, "NX", "GET", "EX", max(int(leftS), 0)+claimBeyondS))
		if err != nil && !errors.Is(err, redis.ErrNil) {
			return err
		}
		mine = before == "" || before == d.entry
		if mine {
			sealed, err := redis.Bytes(conn.Do("GET", w.key("result", d.call.CallID)))
			if err != nil && !errors.Is(err, redis.ErrNil) {
				return err
			}
			_, unsigned := w.seal.Open(purposeResult, d.call.CallID, sealed)
			mine = unsigned != nil
		}
		if !mine {
			_ = conn.Send("XACK", d.stream, group, d.entry)
			_, err = conn.Do("XDEL", d.stream, d.entry)
		}
		return err
	})
	return mine
}

func (w *Worker) isCancelled(d *delivery) (is bool) {
	w.insist(func(conn redis.Conn) (err error) {
		is, err = redis.Bool(conn.Do("EXISTS", w.key("cancelled", d.call.CallID)))
		return err
	})
	return is
}

// perform runs the tool; what it does, the call ends in the one result that is returned, or in none if the worker has
// given it up.
func (w *Worker) perform(d *delivery) map[string]any {
	tool, deadline := w.tools[d.call.Tool], time.UnixMilli(int64(d.call.DeadlineS*1000))
	within := time.Until(deadline)
	if tool.Timeout > 0 && tool.Timeout < within {
		within = tool.Timeout
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	call := &Context{
		Context: ctx, CallID: d.call.CallID, RunID: d.call.RunID, Tool: tool.Name, Tenant: d.call.Tenant, Subject: d.call.Subject,
		Attempt: max(d.deliveries, 1), Deadline: deadline, Values: d.call.Context, State: d.call.State, worker: w, delivery: d,
	}
	done := make(chan map[string]any, 1)
	go func() {
		defer close(done)
		defer func() {
			if broken := recover(); broken != nil {
				w.log.Error("tool panicked", "tool", tool.Name, "call_id", d.call.CallID, "panic", broken)
				done <- failed("error", "tool failed: %v", broken)
			}
		}()
		done <- resultOf(tool.call(call, []byte(d.call.Arguments)))
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	w.begun(d, func() { stop(context.Canceled) })
	var result map[string]any
	select {
	case result = <-done:
	case <-timer.C:
		result = failed("timed_out", "%s did not finish within %v s and was stopped.", tool.Name, within.Round(time.Millisecond).Seconds())
	case <-ctx.Done(): // cancelled, and settled as such by who has cancelled it
	}
	w.ended(d, result)
	stop(nil)
	<-done // a function that does not listen keeps its slot
	return result
}

func resultOf(value any, err error) map[string]any {
	var bad badArguments
	switch {
	case errors.As(err, &bad):
		return failed("bad_arguments", "%s", bad)
	case err != nil && err.Error() == "":
		return failed("error", "tool failed: %T", err)
	case err != nil:
		return failed("error", "%s", err)
	case value == nil:
		return returned("Done")
	}
	if text, is := value.(string); is {
		return returned(text)
	}
	text, err := encodedAny(value)
	if err != nil {
		return failed("error", "the tool returned what has no JSON form: %s", err)
	}
	return returned(string(text))
}

// returned keeps results within what the fleet takes; of a longer one the model is told how long it was.
func returned(content string) map[string]any {
	if size := len(content); size > maxResultBytes {
		cut := previewBytes
		for !utf8.RuneStart(content[cut]) {
			cut--
		}
		content = fmt.Sprintf("%s\n[cut: the result has %d bytes, of which %d are shown]", content[:cut], size, cut)
	}
	return map[string]any{"type": "returned", "content": content}
}
