package toolfleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	laneAtOnce    = 500
	mostWorkers   = 10000
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
	digest := sha256.Sum256([]byte(strings.Join(digests, "\n")))
	return queue + ".lane-" + hex.EncodeToString(digest[:])[:12]
}

type place struct{ queue, level string }

func (w *Worker) placeOf(stream string) place {
	name := stream[len(w.key("queue", "")):]
	at := strings.LastIndexByte(name, ':')
	return place{name[:at], name[at+1:]}
}

// announced is what is of use here of what a worker says of itself.
type announced struct {
	Proofs []string          `json:"proofs"`
	Lanes  map[string]string `json:"lanes"`
	Reads  []int             `json:"reads"`
	Tools  []struct {
		Name   string `json:"name"`
		Queue  string `json:"queue"`
		Digest string `json:"digest"`
	} `json:"tools"`
}

// liveWorkers returns those whose announcement is sealed with our secret, and the names of others that have no secret of ours.
func (w *Worker) liveWorkers(conn redis.Conn) (ours []announced, strangers []string, err error) {
	names, err := redis.Strings(conn.Do("ZRANGE", w.Namespace+":workers", 0, mostWorkers-1))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		sealed, err := redis.Bytes(conn.Do("GET", w.key("worker", name)))
		if err != nil || len(sealed) < macChars+atDigits { // it has gone
			continue
		}
		_, unsigned := w.seal.Open(purposeAnnouncement, name, sealed)
		var said announced
		isRead := json.Unmarshal(sealed[macChars+atDigits:], &said) == nil
		isKnown := slices.ContainsFunc(w.seal.proofs(name), func(own string) bool { return slices.Contains(said.Proofs, own) })
		if unsigned == nil && isRead {
			ours = append(ours, said)
		} else if !isKnown {
			strangers = append(strangers, name)
		}
	}
	return ours, strangers, nil
}

// mustBeWelcome refuses to take the calls of a fleet whose secret is another one: none of them could be believed.
func (w *Worker) mustBeWelcome(conn redis.Conn) error {
	ours, strangers, err := w.liveWorkers(conn)
	if err == nil && len(ours) == 0 && len(strangers) > 0 {
		err = fmt.Errorf("%s use another TOOLFLEET_SECRET than this process: set the same one everywhere", strings.Join(strangers, ", "))
	}
	return err
}

// passOn gives a message to those who can run it, or back to its queue for a while. It returns the call's end if nobody came.
func (w *Worker) passOn(d *delivery) map[string]any {
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
		kept, err = redis.Int(w.run(conn, "forward", keys, group, w.consumer, d.entry, w.stream(home, at.level), pause, patience,
			int64(d.call.DeadlineS*1000), w.key("claim", "")))
		return err
	})
	if kept != stillOurs {
		return nil
	}
	if d.isOnce && d.deliveries > 1 {
		return failed("in_doubt", endings["in_doubt"], d.call.Tool)
	}
	return failed("unknown_tool", "No worker serves %s as it was asked for.", d.call.Tool)
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
			if its := worker.Lanes[tool.Queue]; tool.Name == call.Tool && its != "" && (worker.Reads == nil || slices.Contains(worker.Reads, max(call.V, 1))) {
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

// retireLanes sends home what waits in lanes that nobody reads any more.
func (w *Worker) retireLanes() {
	for _, queue := range w.queues() {
		own := w.laneOf(queue)
		keys := []string{w.key("lane", own), w.key("lanes", queue)}
		for _, level := range levels {
			keys = append(keys, w.stream(own, level), w.stream(queue, level))
		}
		for moved := laneAtOnce; moved >= laneAtOnce; {
			moved = 0
			_ = w.once(func(conn redis.Conn) (err error) {
				moved, err = redis.Int(w.run(conn, "retire_lane", keys, group, returnedTo, own, w.consumer, laneAtOnce, w.key("claim", "")))
				return err
			})
		}
	}
}

// lookAfterOthers returns what workers hold that were without a lease at each look for a third of Lease.
func (w *Worker) lookAfterOthers() error {
	suspects := map[string]time.Time{}
	var queues []string
	for _, queue := range w.queues() {
		queues = append(queues, queue, w.laneOf(queue))
	}
	for _, queue := range queues {
		keys, args := []string{}, []any{group, returnedTo, w.consumer, w.key("lease", ""), w.key("sweeper", queue), 2 * w.renewEvery().Milliseconds()}
		for _, level := range levels {
			keys = append(keys, w.stream(queue, level))
		}
		for name, since := range w.suspects {
			if time.Since(since) > w.Lease/3 {
				args = append(args, name)
			}
		}
		var found []string
		if err := w.once(func(conn redis.Conn) (err error) {
			found, err = redis.Strings(w.run(conn, "sweep", keys, args...))
			return err
		}); err != nil {
			return err
		}
		for _, name := range found {
			since, is := w.suspects[name]
			if !is {
				since = time.Now()
			}
			suspects[name] = since
		}
	}
	w.suspects = suspects
	return nil
}
