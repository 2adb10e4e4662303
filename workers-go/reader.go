package toolfleet

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	longestWaitMS = 1000
	lostReplyMS   = 2500
	lookAtOnce    = -2
)

// read brings messages in until ctx ends, no more than there are free slots for.
func (w *Worker) read(ctx context.Context) {
	streams := w.streams()
	var scheduled []any
	for _, queue := range w.queues() {
		scheduled = append(scheduled, w.key("scheduled", queue))
	}
	for ctx.Err() == nil {
		w.mutex.Lock()
		w.looked = time.Now()
		free := w.Concurrency - w.busy
		w.mutex.Unlock()
		if free <= 0 {
			select {
			case <-ctx.Done():
			case <-w.freed:
			case <-time.After(time.Second):
			}
			continue
		}
		if err := w.once(func(conn redis.Conn) error { return w.readOnce(ctx, conn, streams, scheduled, free) }); err != nil {
			w.Log.Warn("cannot read", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
}

func (w *Worker) readOnce(ctx context.Context, conn redis.Conn, streams []string, scheduled []any, free int) error {
	slots := 0
	if time.Since(w.told) > w.renewEvery()/2 {
		slots, w.told = w.Concurrency, time.Now()
	}
	args := append([]any{group, w.consumer, returnedTo, free, w.key("claim", ""), w.key("cancelled", ""), w.key("result", ""),
		w.Namespace + ":counters", slots}, scheduled...)
	reply, err := redis.Values(w.script(conn, "fetch", streams, args...))
	if err != nil {
		return err
	}
	next, _ := redis.Int(reply[0], nil)
	rows, _ := redis.Values(reply[1], nil)
	found := deliveriesOf(rows, streams)
	w.begin(found)
	if free -= len(found); free < len(streams) || next == lookAtOnce || ctx.Err() != nil { // a read that waits may bring one from each
		return nil
	}
	wait := longestWaitMS
	if next >= 0 {
		wait = max(min(wait, next), 1)
	}
	args = []any{"GROUP", group, w.consumer, "COUNT", free / len(streams), "BLOCK", wait, "STREAMS"}
	for _, stream := range streams {
		args = append(args, stream)
	}
	for range streams {
		args = append(args, ">")
	}
	rows, err = redis.Values(redis.DoWithTimeout(conn, 10*time.Second, "XREADGROUP", args...))
	w.begin(deliveriesOfRead(rows))
	return except(err, redis.ErrNil)
}

func (w *Worker) begin(found []*delivery) {
	w.mutex.Lock()
	for _, each := range found {
		each.began, each.interrupted = time.Now(), make(chan interruption, 1)
		w.held[each.stream+each.entry] = each
	}
	w.busy += len(found)
	w.mutex.Unlock()
	for _, each := range found {
		go w.handle(each)
	}
}

// letGo forgets a message that is out of our hands.
func (w *Worker) letGo(d *delivery) {
	w.mutex.Lock()
	delete(w.held, d.stream+d.entry)
	w.mutex.Unlock()
	w.tellFreed()
}

func (w *Worker) freeSlot() {
	w.mutex.Lock()
	w.busy--
	w.mutex.Unlock()
	w.tellFreed()
}

func (w *Worker) tellFreed() {
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// handBackUnknown returns messages that a reply has brought which never came here.
func (w *Worker) handBackUnknown() error {
	return w.once(func(conn redis.Conn) error {
		for _, stream := range w.streams() {
			pending, err := redis.Values(conn.Do("XPENDING", stream, group, "IDLE", lostReplyMS, "-", "+", 1000, w.consumer))
			var said redis.Error
			if errors.As(err, &said) {
				return nil // no such group yet
			} else if err != nil {
				return err
			}
			unknown := []any{group, w.consumer, returnedTo, 1}
			w.mutex.Lock()
			for _, each := range pending {
				row, _ := redis.Values(each, nil)
				if entry, _ := redis.String(row[0], nil); w.held[stream+entry] == nil {
					unknown = append(unknown, entry)
				}
			}
			w.mutex.Unlock()
			if len(unknown) > 4 {
				if _, err := w.script(conn, "park", []string{stream}, unknown...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
