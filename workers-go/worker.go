// Package toolfleet is a worker for Toolfleet: it serves Go functions as tools that language models call.
//
// It takes part by the contract in docs/wire.md. Every call ends in exactly one result; a call that must not be repeated is
// run at most once, whatever dies meanwhile.
package toolfleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	group, returnedTo  = "workers", "@returned"
	announceEvery      = 10 * time.Second
	cancelLookEvery    = 250 * time.Millisecond
	sayAgainWithin     = 2 * time.Second
	goesWithin         = 10 * time.Second // once nothing may run any more
	exitMisconfigured  = 78
	exitWithoutAServer = 1
)

var levels = []string{"0", "3", "6"} // the most urgent first

// Worker serves tools until it is stopped.
type Worker struct {
	Settings
	seal           *Seal
	pool           *redis.Pool
	scripts        map[string]*redis.Script
	tools          map[string]Served
	consumer, name string
	started        time.Time
	announced      int64
	told           time.Time // when fetch was last told of all slots
	missing        map[string]absence
	settling       chan settlement
	freed          chan struct{} // a slot is free, or a call has ended
	hurry, gone    *bell         // the grace is over; nothing is waited for any more

	mutex  sync.Mutex
	held   map[string]*delivery // by stream and entry
	busy   int                  // slots that are taken; some by functions whose calls have ended
	looked time.Time            // for messages
	others []announced
	seen   time.Time // when others were looked at
}

// A bell rings once, for everybody.
type bell struct {
	rung chan struct{}
	once sync.Once
}

func newBell() *bell    { return &bell{rung: make(chan struct{})} }
func (b *bell) ring()   { b.once.Do(func() { close(b.rung) }) }
func (w *Worker) late() { time.AfterFunc(goesWithin, w.gone.ring) }

// Serve is all of a program's main: it serves these tools as the environment says, until SIGTERM or Ctrl-C.
func Serve(tools ...Served) {
	worker, err := NewWorker(SettingsFromEnvironment(), tools...)
	if err != nil {
		Exit(err)
	}
	worker.Main()
}

// NewWorker returns a worker that Main or Run has at work. Its error is Misconfigured.
func NewWorker(settings Settings, tools ...Served) (*Worker, error) {
	if err := settings.complete(); err != nil {
		return nil, err
	}
	dial, err := settings.dialer()
	if err != nil {
		return nil, err
	}
	byName, err := named(tools)
	if err != nil {
		return nil, err
	}
	scripts, err := loadScripts()
	if err != nil {
		return nil, err
	}
	source := filepath.Base(os.Args[0])
	if built, is := debug.ReadBuildInfo(); is && built.Path != "" && built.Path != "command-line-arguments" {
		source = built.Path
	}
	host, _ := os.Hostname()
	digits := make([]byte, 4)
	if _, err := rand.Read(digits); err != nil {
		return nil, err
	}
	consumer := fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(digits))
	orElse(&settings.Source, source)
	orElse(&settings.Name, fmt.Sprintf("go-%d-%s", os.Getpid(), hex.EncodeToString(digits)))
	return &Worker{
		Settings: settings, seal: NewSeal(settings.Secret, settings.PreviousSecret), scripts: scripts, tools: byName,
		pool:     &redis.Pool{Dial: dial, MaxIdle: 16, IdleTimeout: time.Minute},
		consumer: consumer, name: settings.Name + "@" + host, started: time.Now(),
		held: map[string]*delivery{}, looked: time.Now(), freed: make(chan struct{}, 1), settling: make(chan settlement, 1024),
		missing: map[string]absence{}, hurry: newBell(), gone: newBell(),
	}, nil
}

func named(tools []Served) (map[string]Served, error) {
	byName := map[string]Served{}
	for _, tool := range tools {
		if tool.wrong != nil {
			return nil, tool.wrong
		}
		if _, is := byName[tool.Name]; is {
			return nil, misconfigured("two tools have the name %s", tool.Name)
		}
		byName[tool.Name] = tool
	}
	if len(byName) == 0 {
		return nil, misconfigured("a worker needs a tool")
	}
	return byName, nil
}

// Main serves until SIGTERM or Ctrl-C, then lets calls end; a second signal gives them up at once. Where the worker cannot
// begin the process ends, see Exit.
func (w *Worker) Main() {
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		drain()
		<-signals
		w.hurry.ring()
		w.late()
	}()
	if err := w.Run(ctx); err != nil {
		Exit(err)
	}
}

// Exit ends the process for this reason, in one line: with status 78 if it is set up wrongly, with 1 otherwise.
func Exit(err error) {
	fmt.Fprintln(os.Stderr, "toolfleet worker:", err)
	var wrong Misconfigured
	if errors.As(err, &wrong) {
		os.Exit(exitMisconfigured)
	}
	os.Exit(exitWithoutAServer)
}

// Run serves until ctx ends, then drains. It returns an error only if the worker cannot begin.
func (w *Worker) Run(ctx context.Context) error {
	for _, step := range []func() error{w.renew, w.mustBeWelcome, w.announce} {
		switch err := step(); {
		case err == nil:
		case isRefused(err):
			return misconfigured("Redis refuses us: %s", err)
		case errors.As(err, &Misconfigured{}):
			return err
		default:
			return fmt.Errorf("Redis does not answer: %w", err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	dismiss := w.startCompanion()
	w.Log.Info("serving", "worker", w.name, "tools", len(w.tools))
	over := newBell()
	var lasting, reading sync.WaitGroup
	every := func(group *sync.WaitGroup, until <-chan struct{}, pause time.Duration, do func() error) {
		group.Add(1)
		go func() { defer group.Done(); w.repeat(until, pause, do) }()
	}
	every(&lasting, over.rung, w.renewEvery(), w.renew)
	every(&lasting, over.rung, w.renewEvery(), w.lookAfterOthers)
	every(&lasting, over.rung, cancelLookEvery, w.lookForCancels)
	every(&reading, ctx.Done(), w.Heartbeat, w.handBackUnknown)
	every(&reading, ctx.Done(), announceEvery, func() error {
		err := w.announce()
		if errors.As(err, &Misconfigured{}) {
			stop() // calls for our tools would be meant for others
		}
		return err
	})
	lasting.Add(1)
	go func() { defer lasting.Done(); w.settleAll(over.rung) }()
	w.read(ctx)
	reading.Wait()
	w.drain()
	over.ring()
	lasting.Wait()
	w.leave()
	dismiss()
	return nil
}

func (w *Worker) repeat(over <-chan struct{}, pause time.Duration, do func() error) {
	for {
		wait := pause
		if err := do(); err != nil {
			w.Log.Warn("Redis did not take it", "error", err)
			wait = time.Second
		}
		select {
		case <-over:
			return
		case <-time.After(wait):
		}
	}
}

// insist says something to Redis until it answers, or the worker goes without a word.
func (w *Worker) insist(do func(conn redis.Conn) error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, sayAgainWithin) {
		err := w.once(do)
		if err == nil {
			return
		}
		w.Log.Warn("Redis did not take it, trying again", "error", err)
		select {
		case <-w.gone.rung:
			return
		case <-time.After(pause):
		}
	}
}

// once runs do on a connection of the pool.
func (w *Worker) once(do func(conn redis.Conn) error) error {
	conn := w.pool.Get()
	defer conn.Close()
	return do(conn)
}

// except passes over one kind of error.
func except(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

func (w *Worker) key(kind, name string) string { return w.Namespace + ":" + kind + ":" + name }

func (w *Worker) queues() []string {
	seen := map[string]bool{}
	var queues []string
	for _, tool := range w.tools {
		if !seen[tool.Queue] {
			seen[tool.Queue] = true
			queues = append(queues, tool.Queue)
		}
	}
	sort.Strings(queues)
	return queues
}

// streams are those of all queues, level by level, each behind the lane of what is served here.
func (w *Worker) streams() []string {
	var streams []string
	for _, level := range levels {
		for _, queue := range w.queues() {
			streams = append(streams, w.stream(w.laneOf(queue), level), w.stream(queue, level))
		}
	}
	return streams
}

func (w *Worker) stream(queue, level string) string { return w.key("queue", queue+":"+level) }

// lookForCancels has nobody wait any more for running calls that are no longer wanted.
func (w *Worker) lookForCancels() error {
	var running []*delivery
	var marks []any
	w.mutex.Lock()
	for _, d := range w.held {
		if d.isUnderWay.Load() {
			running, marks = append(running, d), append(marks, w.key("cancelled", d.call.CallID))
		}
	}
	w.mutex.Unlock()
	if len(running) == 0 {
		return nil
	}
	return w.once(func(conn redis.Conn) error {
		found, err := redis.Values(conn.Do("MGET", marks...))
		for i, mark := range found {
			said, _ := mark.([]byte)
			if _, unsigned := w.seal.Open(purposeCancel, running[i].call.CallID, said); unsigned == nil {
				running[i].interrupt(cancelled)
			}
		}
		return err
	})
}

// drain withdraws the announcement and lets calls end within the grace; then others have them, or they are in doubt.
func (w *Worker) drain() {
	w.insist(func(conn redis.Conn) error {
		_ = conn.Send("DEL", w.key("worker", w.name))
		_, err := conn.Do("ZREM", w.Namespace+":workers", w.name)
		return err
	})
	if w.hasEndedAll(time.After(w.Grace), w.hurry.rung) {
		return
	}
	w.late()
	w.mutex.Lock()
	for _, d := range w.held {
		d.interrupt(shutdown)
	}
	w.mutex.Unlock()
	w.hasEndedAll(nil, w.gone.rung)
}

func (w *Worker) hasEndedAll(until <-chan time.Time, over <-chan struct{}) bool {
	for {
		w.mutex.Lock()
		left := len(w.held)
		w.looked = time.Now()
		w.mutex.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-w.freed:
		case <-time.After(time.Second):
		case <-until:
			return false
		case <-over:
			return false
		}
	}
}
