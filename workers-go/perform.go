package toolfleet

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// stopsWithin is how long a function may take to end once its context has, before it is said to go on.
const stopsWithin = 100 * time.Millisecond

// endings are what a model reads of a call that does not begin here, by the verdict.
var endings = map[string]string{
	"in_doubt":  "%s was interrupted: its effect may or may not have happened, and it was not run again. Check before you repeat it.",
	"crashed":   "%s crashed: its worker was lost in each attempt. Do not repeat the same call.",
	"expired":   "%s did not start before its deadline; it has had no effect.",
	"cancelled": "%s was cancelled before it started.",
}

// handle takes a message to its end, whatever that is.
func (w *Worker) handle(d *delivery) {
	defer w.freeSlot()
	defer w.letGo(d)
	verdict, reason := d.judge(w.seal, w.tools, float64(time.Now().UnixMilli())/1000, w.Settings)
	isLate := !d.isLooked && d.fields["first"] != nil // it has waited since it was read for the first time
	if (verdict == toRun || verdict == toClaim) && isLate && w.isCancelled(d) {
		verdict = "cancelled"
	}
	switch verdict {
	case toBury:
		w.bury(d, reason.Error())
	case toPassOn:
		w.passOn(d)
	case toClaim:
		if w.claim(d) {
			w.perform(d)
		}
	case toRun:
		w.perform(d)
	default:
		w.settle(d, failed(verdict, endings[verdict], d.call.Tool))
	}
}

// claim makes sure that this message, and no copy of it, runs a call that must not be repeated.
func (w *Worker) claim(d *delivery) bool {
	var isOurs bool
	leftS := max(int(d.call.DeadlineS-float64(time.Now().UnixMilli())/1000), 0)
	key, lasts := w.key("claim", d.call.CallID), leftS+claimBeyondS
	w.insist(func(conn redis.Conn) error {
		_ = conn.Send("SET", key, d.entry, "NX", "GET", "EX", lasts)
		_ = conn.Send("EXPIRE", key, lasts, "GT") // the one that is there may be a shorter one
		_ = conn.Send("GET", w.key("result", d.call.CallID))
		replies, err := redis.Values(conn.Do(""))
		if err != nil {
			return err
		}
		before, err := redis.String(replies[0], nil)
		if except(err, redis.ErrNil) != nil {
			return err
		}
		sealed, err := redis.Bytes(replies[2], nil)
		if except(err, redis.ErrNil) != nil {
			return err
		}
		// Said again after a lost reply, our own claim is there.
		isOurs = (before == "" || before == d.entry) && !w.believes(d.call.CallID, sealed)
		if !isOurs {
			_ = conn.Send("XACK", d.stream, group, d.entry)
			_ = conn.Send("XDEL", d.stream, d.entry)
			_, err = conn.Do("HINCRBY", w.Namespace+":counters", "duplicate_messages", 1)
			return err
		}
		return nil
	})
	return isOurs
}

func (w *Worker) isCancelled(d *delivery) (is bool) {
	w.insist(func(conn redis.Conn) (err error) {
		is, err = redis.Bool(conn.Do("EXISTS", w.key("cancelled", d.call.CallID)))
		return err
	})
	return is
}

// ended is what a function has come to.
type ended struct {
	value any
	err   error
}

// perform runs the tool; whatever it does, the call ends in one way. A function that does not listen keeps its slot.
func (w *Worker) perform(d *delivery) {
	tool, deadline := w.tools[d.call.Tool], time.UnixMilli(int64(d.call.DeadlineS*1000))
	if d.call.isUndoing {
		w.settle(d, failed("error", "%s cannot take back what it has done", tool.Name))
		return
	}
	arguments := strings.TrimSpace(d.call.Arguments)
	orElse(&arguments, "{}")
	if err := tool.check(arguments); err != nil {
		w.settle(d, failed("bad_arguments", "%s", err))
		return
	}
	within := time.Until(deadline)
	if tool.Timeout > 0 && tool.Timeout < within {
		within = tool.Timeout
	}
	base, stop := context.WithCancel(context.Background())
	defer stop()
	ctx := &Context{
		Context: base, CallID: d.call.CallID, RunID: d.call.RunID, Tool: tool.Name, Tenant: d.call.Tenant, Subject: d.call.Subject,
		Attempt: max(d.deliveries, 1), Deadline: deadline, Values: d.call.Context, State: d.call.State, worker: w, delivery: d,
	}
	if tool.LongRunning {
		ctx.Progress(0, "") // whoever asks with its handle learns that it runs
	}
	done := make(chan ended, 1)
	go func() { done <- w.run(tool, ctx, arguments) }()
	clock := time.AfterFunc(within, func() { d.interrupt(timedOut) })
	defer clock.Stop()
	d.isUnderWay.Store(true)
	select {
	case end := <-done:
		ctx.tellNewest() // before its result, behind which nobody listens
		w.conclude(d, end)
	case why := <-d.interrupted:
		stop()
		hasStopped := why == timedOut && isClosedWithin(done, stopsWithin)
		w.concludeInterrupted(d, why, within, hasStopped)
		w.letGo(d)
		if !hasStopped {
			<-done
		}
	}
}

func isClosedWithin(done <-chan ended, pause time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(pause):
		return false
	}
}

// run calls the function; a panic of it is its error.
func (w *Worker) run(tool Served, ctx *Context, arguments string) (end ended) {
	defer func() {
		if broken := recover(); broken != nil {
			w.Log.Error("tool panicked", "tool", tool.Name, "call_id", ctx.CallID, "panic", broken)
			end = ended{err: fmt.Errorf("tool failed: %v", broken)}
		}
	}()
	value, err := tool.call(ctx, []byte(arguments))
	return ended{value, err}
}

// conclude ends a call as its function says.
func (w *Worker) conclude(d *delivery, end ended) {
	var later RetryAfter
	isLater := errors.As(end.err, &later)
	isInTime := float64(time.Now().Add(later.Wait).UnixMilli())/1000 < d.call.DeadlineS
	job, isJob := end.value.(Submitted)
	switch {
	case isLater && !later.TellModel && isInTime:
		w.postpone(d, later.Wait)
	case isLater && isInTime:
		w.settle(d, failed("limit", "%s is %s.", d.call.Tool, later))
	case isLater:
		w.settle(d, failed("limit", "%s is %s, which is after the call's deadline.", d.call.Tool, later))
	case end.err == nil && isJob && job.ExternalID != "":
		w.submit(d, job)
	default:
		w.settle(d, resultOf(end.value, end.err))
	}
}

func (w *Worker) concludeInterrupted(d *delivery, why interruption, within time.Duration, hasStopped bool) {
	tool := d.call.Tool
	late := fmt.Sprintf("%s did not finish within %v s", tool, within.Round(time.Millisecond).Seconds())
	switch {
	case why == shutdown && !d.isOnce:
		w.handBack(d)
	case why == shutdown:
		w.settle(d, failed("in_doubt", endings["in_doubt"], tool))
	case why == cancelled:
		w.settle(d, failed("cancelled", "%s was cancelled while it ran.%s", tool, d.doubt()))
	case hasStopped:
		w.settle(d, failed("timed_out", "%s and was stopped.%s", late, d.doubt()))
	default:
		w.settle(d, failed("timed_out", "%s. It does not listen to its context and may still be at work.%s", late, d.doubt()))
	}
}

// failed is the result of a call without a return value; its message is for the model.
func failed(kind, format string, values ...any) map[string]any {
	return map[string]any{"type": "failed", "kind": kind, "message": fmt.Sprintf(format, values...)}
}

func returned(content string) map[string]any {
	return map[string]any{"type": "returned", "content": strings.ToValidUTF8(content, "\ufffd")}
}

// resultOf is the record of what a function returned: a text as it is, nothing as "Done", anything else as JSON.
func resultOf(value any, err error) map[string]any {
	var bad badArguments
	switch {
	case errors.As(err, &bad):
		return failed("bad_arguments", "%s", bad)
	case err != nil && err.Error() == "":
		return failed("error", "tool failed: %s", typeName(err))
	case err != nil:
		return failed("error", "%s", err)
	case value == nil:
		return returned("Done")
	}
	switch value := value.(type) {
	case string:
		return returned(value)
	case Submitted:
		return failed("error", "the tool returned Submitted without an ExternalID, so nobody could say how its job ends")
	case Returned:
		_, err := encodedAny([]any{value.State, value.Attributes})
		result := returned(value.Content)
		result["state"], result["attributes"] = orEmpty(value.State), orEmpty(value.Attributes)
		if err == nil {
			return result
		}
	}
	text, err := encodedAny(value)
	if err != nil {
		return failed("error", "the tool returned an object that has no JSON form: %s", err)
	}
	return returned(string(text))
}

func orEmpty(values map[string]any) map[string]any {
	if values == nil {
		return map[string]any{}
	}
	return values
}

func typeName(err error) string {
	kind := reflect.TypeOf(err)
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	return kind.Name()
}
