package toolfleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	stuckAfter = 2 * time.Minute // without a look at the queue no lease is renewed
	goneMS     = 300000
	laneAtOnce = 500
)

func (w *Worker) renewEvery() time.Duration { return min(w.Lease/6, w.Heartbeat) }

func (w *Worker) renew() error {
	w.mutex.Lock()
	isStuck := time.Since(w.looked) > stuckAfter
	w.mutex.Unlock()
	if isStuck {
		return errors.New("the queue was not looked at for minutes: others may take what is here")
	}
	return w.once(func(conn redis.Conn) error {
		holdsMS := (w.Lease / 2).Milliseconds()
		for _, queue := range w.queues() {
			lane := w.laneOf(queue)
			if _, err := w.script(conn, "keep_lane", []string{w.key("lane", lane), w.key("lanes", queue)}, lane, w.consumer, holdsMS); err != nil {
				return err
			}
		}
		_, err := conn.Do("SET", w.key("lease", w.consumer), "alive", "PX", holdsMS)
		return err
	})
}

// absence is since when a consumer was missed at each look, and until when.
type absence struct{ since, seen time.Time }

// lookAfterOthers returns what lost workers held, in our queues and in all their lanes.
func (w *Worker) lookAfterOthers() error {
	for _, queue := range w.queues() {
		var lanes []string
		err := w.once(func(conn redis.Conn) (err error) {
			lanes, err = redis.Strings(conn.Do("SMEMBERS", w.key("lanes", queue)))
			return err
		})
		if err == nil {
			err = w.sweep(queue)
		}
		for _, lane := range lanes {
			if err == nil {
				err = w.sweep(lane)
			}
			if err == nil && lane != w.laneOf(queue) {
				err = w.retire(lane, "")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep condemns only who was missing at each look for a third of Lease.
func (w *Worker) sweep(queue string) error {
	args := []any{group, returnedTo, w.consumer, w.key("lease", ""), w.key("sweeper", queue), 2 * w.renewEvery().Milliseconds()}
	for name, missed := range w.missing {
		if time.Since(missed.seen) > 3*w.renewEvery() {
			delete(w.missing, name)
		} else if missed.seen.Sub(missed.since) >= w.Lease/3 {
			args = append(args, name)
		}
	}
	return w.once(func(conn redis.Conn) error {
		found, err := redis.Strings(w.script(conn, "sweep", w.streamsOf(queue), args...))
		for _, name := range found {
			missed, is := w.missing[name]
			if !is {
				missed.since = time.Now()
			}
			w.missing[name] = absence{missed.since, time.Now()}
		}
		return err
	})
}

func (w *Worker) streamsOf(queue string) []string {
	var streams []string
	for _, level := range levels {
		streams = append(streams, w.stream(queue, level))
	}
	return streams
}

// retire sends home what waits in a lane that nobody reads; consumer reads it no more.
func (w *Worker) retire(lane, consumer string) error {
	home := homeOf(lane)
	keys := []string{w.key("lane", lane), w.key("lanes", home)}
	for _, level := range levels {
		keys = append(keys, w.stream(lane, level), w.stream(home, level))
	}
	for {
		moved := 0
		err := w.once(func(conn redis.Conn) (err error) {
			moved, err = redis.Int(w.script(conn, "retire_lane", keys, group, returnedTo, lane, consumer, laneAtOnce, w.key("claim", "")))
			return err
		})
		if err != nil || moved < laneAtOnce {
			return err
		}
	}
}

// leave ends the consumer: what it still holds goes to others, and counts as delivered.
func (w *Worker) leave() {
	w.insist(func(conn redis.Conn) error { return w.leaveOn(conn, w.consumer, w.streams()) })
	for _, queue := range w.queues() {
		if err := w.retire(w.laneOf(queue), w.consumer); err != nil {
			w.Log.Warn("others will look after our lane", "error", err)
		}
	}
}

func (w *Worker) leaveOn(conn redis.Conn, consumer string, streams []string) error {
	_, err := w.script(conn, "leave", append([]string{w.key("lease", consumer)}, streams...), group, returnedTo, consumer, goneMS)
	return err
}

// --- the companion ---------------------------------------------------------------------------------------------------

// A companion is the same program once more, started with this variable set. It waits for the end of the worker's process
// and then says that it is gone, so that a killed worker's calls need not wait for its lease to lapse.
const companionOf = "TOOLFLEET_COMPANION_OF"

type orders struct {
	RedisURL, Namespace, Secret, Consumer string
	Streams                               []string
}

func init() {
	if os.Getenv(companionOf) != "" {
		accompany()
		os.Exit(0)
	}
}

// startCompanion returns what ends it. Without one nothing is lost but time.
func (w *Worker) startCompanion() (dismiss func()) {
	program, err := os.Executable()
	companion := exec.Command(program)
	companion.Env = append(os.Environ(), companionOf+"="+w.consumer)
	companion.Stderr = os.Stderr
	companion.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the worker
	pipe, failed := companion.StdinPipe()
	if err = errors.Join(err, failed); err == nil {
		err = companion.Start()
	}
	if err != nil {
		w.Log.Warn("no companion: if this process is killed, others wait for its lease to lapse", "error", err)
		return func() {}
	}
	_ = json.NewEncoder(pipe).Encode(orders{w.RedisURL, w.Namespace, w.Secret, w.consumer, w.streams()})
	return func() {
		_ = companion.Process.Kill()
		_ = companion.Wait()
	}
}

func accompany() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	var said orders
	if err != nil || json.Unmarshal(line, &said) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, input) // until the worker ends, however it does
	settings := Settings{RedisURL: said.RedisURL, Namespace: said.Namespace, Secret: said.Secret}
	dial, err := settings.dialer()
	scripts, failed := loadScripts()
	if errors.Join(err, failed) != nil {
		return
	}
	w := &Worker{Settings: settings, pool: &redis.Pool{Dial: dial}, scripts: scripts, gone: newBell()}
	_ = settings.complete()
	w.Log = settings.Log
	time.AfterFunc(time.Minute, w.gone.ring) // by then its lease has lapsed
	w.insist(func(conn redis.Conn) error { return w.leaveOn(conn, said.Consumer, said.Streams) })
}
