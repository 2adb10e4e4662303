package toolfleet

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	lookAgainMS   = 1000
	passAgainMS   = 200
	unservedForMS = 30000
	stillOurs     = 3
)

var lane = regexp.MustCompile(`\.lane-[0-9a-f]{12}$`)

// homeOf is the queue that a lane belongs to, and a queue itself.
func homeOf(queue string) string { return lane.ReplaceAllString(queue, "") }

// laneOf is read by those that serve just what is served here of a queue, so that calls find them among others.
func (w *Worker) laneOf(queue string) string {
	var digests []string
	for name, tool := range w.tools {
		if tool.Queue == queue {
			digests = append(digests, name+" "+tool.digest)
		}
	}
	sort.Strings(digests)
	return queue + ".lane-" + digestOf(strings.Join(digests, "\n"))[:12]
}

type place struct{ queue, level string }

func (w *Worker) placeOf(stream string) place {
	name := stream[len(w.key("queue", "")):]
	at := strings.LastIndexByte(name, ':')
	return place{name[:at], name[at+1:]}
}

// passOn gives a message to those who can run it, or back to its queue for a while; the call ends if nobody came in time.
func (w *Worker) passOn(d *delivery) {
	at, kept := w.placeOf(d.stream), 0
	home := homeOf(at.queue)
	w.insist(func(conn redis.Conn) error {
		lanes, err := w.lanesWith(conn, d.call)
		if err != nil {
			return err
		}
		keys := []string{d.stream, w.key("scheduled", home)}
		for _, each := range lanes {
			keys = append(keys, w.key("lane", each), w.stream(each, at.level))
		}
		pause, patience := lookAgainMS, unservedForMS
		if len(lanes) > 0 {
			pause, patience = passAgainMS, -1
		}
		kept, err = redis.Int(w.script(conn, "forward", keys, group, w.consumer, d.entry, w.stream(home, at.level), pause, patience,
			int64(d.call.DeadlineS*1000), w.key("claim", "")))
		return err
	})
	switch {
	case kept != stillOurs:
	case d.isOnce && d.deliveries > 1:
		w.settle(d, failed("in_doubt", endings["in_doubt"], d.call.Tool))
	case d.call.Version != 0:
		w.settle(d, failed("unknown_tool", "no live worker serves version %d of %s, and none came in time", d.call.Version, d.call.Tool))
	default:
		w.settle(d, failed("unknown_tool", "no live worker serves %s as it was asked for, and none came in time", d.call.Tool))
	}
}

// lanesWith are the lanes whose readers serve a call: under the contract that it was offered with, if anybody does.
func (w *Worker) lanesWith(conn redis.Conn, call Call) ([]string, error) {
	w.mutex.Lock()
	others, isFresh := w.others, time.Since(w.seen) < lookAgainMS*time.Millisecond
	w.mutex.Unlock()
	if !isFresh {
		var err error
		if others, _, err = w.liveWorkers(conn); err != nil {
			return nil, err
		}
		w.mutex.Lock()
		w.others, w.seen = others, time.Now()
		w.mutex.Unlock()
	}
	var exact, any []string
	for _, worker := range others {
		for _, tool := range worker.Tools {
			if its := worker.Lanes[tool.Queue]; tool.Name == call.Tool && its != "" && (call.Version == 0 || call.Version == tool.Version) && (worker.Reads == nil || slices.Contains(worker.Reads, max(call.V, 1))) {
				any = append(any, its)
				if tool.Digest == "" || tool.Digest == call.contract {
					exact = append(exact, its)
				}
			}
		}
	}
	if len(exact) == 0 {
		exact = any
	}
	rand.Shuffle(len(exact), func(i, j int) { exact[i], exact[j] = exact[j], exact[i] })
	return exact, nil
}
