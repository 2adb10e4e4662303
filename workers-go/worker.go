// Package toolfleet is a worker for Toolfleet: it serves Go functions as tools that language models call.
//
// It takes part by the contract in docs/wire.md. Every call ends in exactly one result; a call that must not be repeated is
// run at most once, whatever dies meanwhile.
package toolfleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	group, returnedTo = "workers", "@returned"
	announceEvery     = 10 * time.Second
	announcedS        = 30
	sayAgainWithin    = 2 * time.Second
	stuckAfter        = 2 * time.Minute // without a look at the queue no lease is renewed
	goneMS            = 60000
	tellWithin        = time.Second
)

var levels = []string{"0", "3", "6"} // the most urgent first

// Settings say which fleet a worker belongs to, and how much it takes.
type Settings struct {
	RedisURL, Namespace, Secret, PreviousSecret string
	// Name is what the worker announces itself by, before @ and the host. Nobody else's; made up if left out.
	Name string
	// Concurrency is how many calls run at once.
	Concurrency int
	// MaxMessageBytes is the size of the largest call, signed, that is read; the fleet's 4 MiB unless said otherwise.
	MaxMessageBytes int
	// Lease is the fleet's TOOLFLEET_LEASE_S, 30 s unless said otherwise: when others have what a lost worker held.
	Lease time.Duration
	// Grace is how long calls may take to end when the worker is stopped.
	Grace time.Duration
	Log   *slog.Logger
}

// SettingsFromEnvironment reads TOOLFLEET_REDIS_URL, _NAMESPACE, _SECRET, _PREVIOUS_SECRET, _LEASE_S and _MAX_MESSAGE_BYTES as all
// workers do.
func SettingsFromEnvironment() Settings {
	leaseS, _ := strconv.ParseFloat(os.Getenv("TOOLFLEET_LEASE_S"), 64)
	bytes, _ := strconv.Atoi(os.Getenv("TOOLFLEET_MAX_MESSAGE_BYTES"))
	return Settings{
		RedisURL: os.Getenv("TOOLFLEET_REDIS_URL"), Namespace: os.Getenv("TOOLFLEET_NAMESPACE"),
		Secret: os.Getenv("TOOLFLEET_SECRET"), PreviousSecret: os.Getenv("TOOLFLEET_PREVIOUS_SECRET"),
		Lease: time.Duration(leaseS * float64(time.Second)), MaxMessageBytes: bytes,
	}
}

// Worker serves tools until it is stopped.
type Worker struct {
	Settings
	log            *slog.Logger
	seal           *Seal
	pool           *redis.Pool
	scripts        map[string]*redis.Script
	tools          map[string]*served
	consumer, name string
	source         string // of which program its tools are
	started        time.Time

	mutex     sync.Mutex
	held      map[string]*delivery // by stream and entry
	announced int64
	looked    time.Time
	told      time.Time // when fetch was last told of all slots
	suspects  map[string]time.Time
	others    []announced
	seen      time.Time // when others were looked at, under the mutex
	freed     chan struct{}
	settling  chan settlement
	gone      chan struct{} // closed when the worker ends at once
}

type settlement struct {
	delivery *delivery
	sealed   []byte
}

// NewWorker returns a worker without tools; Add gives it some.
func NewWorker(settings Settings) (*Worker, error) {
	if settings.RedisURL == "" {
		settings.RedisURL = "redis://127.0.0.1:6379/0"
	}
	if settings.Namespace == "" {
		settings.Namespace = "toolfleet"
	}
	if settings.Concurrency == 0 {
		settings.Concurrency = 100
	}
	if settings.MaxMessageBytes == 0 {
		settings.MaxMessageBytes = 4 << 20
	}
	if settings.Lease == 0 {
		settings.Lease = 30 * time.Second
	}
	if settings.Grace == 0 {
		settings.Grace = 30 * time.Second
	}
	if settings.Log == nil {
		settings.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	source := filepath.Base(os.Args[0])
	if built, is := debug.ReadBuildInfo(); is && built.Path != "" {
		source = built.Path
	}
	scripts, err := loadScripts()
	if err != nil {
		return nil, err
	}
	dial, err := dialer(settings.RedisURL)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	digits := make([]byte, 4)
	if _, err := rand.Read(digits); err != nil {
		return nil, err
	}
	consumer := fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(digits))
	if settings.Name == "" {
		settings.Name = fmt.Sprintf("go-%d-%s", os.Getpid(), hex.EncodeToString(digits))
	}
	return &Worker{
		Settings: settings, log: settings.Log, seal: NewSeal(settings.Secret, settings.PreviousSecret),
		pool:    &redis.Pool{Dial: dial, MaxIdle: 16, IdleTimeout: time.Minute},
		scripts: scripts, tools: map[string]*served{}, consumer: consumer, name: settings.Name + "@" + host, source: source, started: time.Now(),
		held: map[string]*delivery{}, looked: time.Now(), freed: make(chan struct{}, 1), settling: make(chan settlement, 1024),
		gone: make(chan struct{}),
	}, nil
}

// dialer understands redis://, rediss:// and unix:// addresses.
func dialer(address string) (func() (redis.Conn, error), error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("TOOLFLEET_REDIS_URL is no address") // it may have a password, which err would show
	}
	options := []redis.DialOption{redis.DialConnectTimeout(5 * time.Second), redis.DialReadTimeout(10 * time.Second), redis.DialWriteTimeout(10 * time.Second)}
	switch parsed.Scheme {
	case "redis", "rediss":
		if user := parsed.User.Username(); user != "" {
			options = append(options, redis.DialUsername(user))
		}
		return func() (redis.Conn, error) { return redis.DialURL(address, options...) }, nil
	case "unix":
		if password, is := parsed.User.Password(); is {
			options = append(options, redis.DialPassword(password))
		}
		if db, err := strconv.Atoi(parsed.Query().Get("db")); err == nil {
			options = append(options, redis.DialDatabase(db))
		}
		return func() (redis.Conn, error) { return redis.Dial("unix", parsed.Path, options...) }, nil
	}
	return nil, fmt.Errorf("TOOLFLEET_REDIS_URL begins with %q: redis://, rediss:// and unix:// are understood", parsed.Scheme+"://")
}

// Main serves until SIGTERM or Ctrl-C, then lets calls end; a second signal gives them up at once.
func (w *Worker) Main() error {
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		drain()
		<-signals
		close(w.gone)
	}()
	return w.Run(ctx)
}

// Run serves until ctx ends, then drains. It returns an error only if the worker cannot begin.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.tools) == 0 {
		return errors.New("a worker without tools serves nobody: Add some")
	}
	if err := w.renew(); err != nil {
		return fmt.Errorf("Redis does not answer: %w", err)
	}
	if err := w.once(w.mustBeWelcome); err != nil {
		return err
	}
	if err := w.announce(); err != nil {
		return err
	}
	w.log.Info("serving", "worker", w.name, "tools", len(w.tools))
	over := make(chan struct{})
	var lasting, reading sync.WaitGroup
	every := func(pause time.Duration, do func() error) {
		lasting.Add(1)
		go func() { defer lasting.Done(); w.repeat(over, pause, do) }()
	}
	every(w.renewEvery(), w.renew)
	every(w.renewEvery(), w.lookAfterOthers)
	every(time.Second, w.lookForCancels)
	every(3*time.Second, w.handBackUnknown)
	lasting.Add(1)
	go func() { defer lasting.Done(); w.settle(over) }()
	reading.Add(1)
	go func() { defer reading.Done(); w.repeat(ctx.Done(), announceEvery, w.announce) }()
	w.read(ctx)
	reading.Wait()
	w.drain()
	w.giveUp()
	close(over)
	lasting.Wait()
	w.leave()
	return nil
}

func (w *Worker) repeat(over <-chan struct{}, pause time.Duration, do func() error) {
	for {
		wait := pause
		if err := do(); err != nil {
			w.log.Warn("Redis did not take it", "error", err)
			wait = time.Second
		}
		select {
		case <-over:
			return
		case <-time.After(wait):
		}
	}
}

// insist says something to Redis until it answers, or the worker ends.
func (w *Worker) insist(do func(conn redis.Conn) error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, sayAgainWithin) {
		conn := w.pool.Get()
		err := do(conn)
		conn.Close()
		if err == nil {
			return
		}
		w.log.Warn("Redis did not take it", "error", err)
		select {
		case <-w.gone:
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

func (w *Worker) renewEvery() time.Duration { return min(w.Lease/6, 5*time.Second) }

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
			if _, err := w.run(conn, "keep_lane", []string{w.key("lane", lane), w.key("lanes", queue)}, lane, w.consumer, holdsMS); err != nil {
				return err
			}
		}
		_, err := conn.Do("SET", w.key("lease", w.consumer), "alive", "PX", holdsMS)
		return err
	})
}

// announce says which tools are served here. Another tool under one of their names ends the worker at its start.
func (w *Worker) announce() error {
	names := make([]string, 0, len(w.tools))
	for name := range w.tools {
		names = append(names, name)
	}
	sort.Strings(names)
	sources, specs := map[string]string{}, make([]map[string]any, 0, len(names))
	keys := []string{w.Namespace + ":workers", w.key("worker", w.name)}
	var variants []any
	for _, name := range names {
		tool := w.tools[name]
		spec := map[string]any{
			"v": 1, "name": name, "description": tool.Description, "input_schema": tool.Schema, "effect": tool.Effect,
			"queue": tool.Queue, "digest": tool.digest,
		}
		if tool.Timeout > 0 {
			spec["timeout_s"] = tool.Timeout.Seconds()
		}
		sources[name] = w.source + ":" + name
		digest := sha256.Sum256(encoded(spec))
		specs = append(specs, spec)
		keys = append(keys, w.key("spec", name))
		variants = append(variants, hex.EncodeToString(digest[:])[:16]+" "+sources[name])
	}
	lanes := map[string]string{}
	for _, queue := range w.queues() {
		lanes[queue] = w.laneOf(queue)
	}
	text := encoded(map[string]any{
		"v": 1, "worker": w.name, "lanes": lanes, "pid": os.Getpid(), "pool": "go", "concurrency": w.Concurrency, "queues": w.queues(),
		"started_unix_s": float64(w.started.UnixMilli()) / 1000, "tools": specs, "proofs": w.seal.proofs(w.name),
		"sources": sources, "reads": []int{1},
	})
	return w.once(func(conn redis.Conn) error {
		at, err := redis.Int64s(conn.Do("TIME"))
		if err != nil {
			return err
		}
		w.announced = max(at[0]*1000+at[1]/1000, w.announced+1)
		sealed := w.seal.closeAnnouncement(w.name, w.announced, text)
		reply, err := redis.Values(w.run(conn, "announce", keys, append([]any{announcedS, w.name, sealed}, variants...)...))
		if err != nil {
			return err
		}
		if position, _ := redis.Int(reply[0], nil); position >= 0 {
			other, _ := redis.String(reply[1], nil)
			return fmt.Errorf("another tool is served under the name %s (%s): stop its workers first, or rename the tool", names[position], other)
		}
		return nil
	})
}

// read brings messages in until ctx ends.
func (w *Worker) read(ctx context.Context) {
	streams := w.streams()
	var scheduled []any
	for _, queue := range w.queues() {
		scheduled = append(scheduled, w.key("scheduled", queue))
	}
	for ctx.Err() == nil {
		w.mutex.Lock()
		w.looked = time.Now()
		free := w.Concurrency - len(w.held)
		w.mutex.Unlock()
		if free <= 0 {
			select {
			case <-ctx.Done():
			case <-w.freed:
			case <-time.After(time.Second):
			}
			continue
		}
		if err := w.once(func(conn redis.Conn) error { return w.readOnce(conn, streams, scheduled, free) }); err != nil {
			w.log.Warn("cannot read", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
}

func (w *Worker) readOnce(conn redis.Conn, streams []string, scheduled []any, free int) error {
	slots := 0
	if time.Since(w.told) > w.renewEvery()/2 {
		slots, w.told = w.Concurrency, time.Now()
	}
	args := append([]any{group, w.consumer, returnedTo, free, w.key("claim", ""), w.key("cancelled", ""), w.key("result", ""),
		w.Namespace + ":counters", slots}, scheduled...)
	reply, err := redis.Values(w.run(conn, "fetch", streams, args...))
	if err != nil {
		return err
	}
	next, _ := redis.Int(reply[0], nil)
	rows, _ := redis.Values(reply[1], nil)
	found := deliveriesOf(rows, streams)
	w.begin(found)
	if free -= len(found); free < len(streams) || next == -2 { // a read that waits may bring one from each stream
		return nil
	}
	wait := 1000
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
	if err != nil && !errors.Is(err, redis.ErrNil) {
		return err
	}
	w.begin(deliveriesOfRead(rows))
	return nil
}

func (w *Worker) begin(found []*delivery) {
	for _, each := range found {
		w.mutex.Lock()
		w.held[each.stream+each.entry] = each
		w.mutex.Unlock()
		go w.handle(each)
	}
}

func (w *Worker) handle(d *delivery) {
	defer w.letGo(d)
	result, isToRun := w.take(d)
	if isToRun {
		w.perform(d)
	} else if result != nil {
		w.ended(d, result)
	}
}

func (w *Worker) letGo(d *delivery) {
	w.mutex.Lock()
	delete(w.held, d.stream+d.entry)
	w.mutex.Unlock()
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

func (w *Worker) begun(d *delivery, stop func()) {
	w.mutex.Lock()
	d.isUnderWay, d.stop = true, stop
	w.mutex.Unlock()
}

// ended settles a call with this result, unless it is settled already.
func (w *Worker) ended(d *delivery, result map[string]any) {
	w.mutex.Lock()
	isFirst := !d.isSettled && result != nil
	d.isSettled = d.isSettled || isFirst
	w.mutex.Unlock()
	if !isFirst {
		return
	}
	result["attempt"] = map[string]any{
		"worker": w.name, "number": max(d.deliveries, 1),
		"began_unix_s": float64(d.began.UnixMicro()) / 1e6, "ended_unix_s": float64(time.Now().UnixMicro()) / 1e6,
	}
	d.settled = make(chan struct{})
	w.settling <- settlement{d, w.seal.Close(purposeResult, d.call.CallID, encoded(result))}
	<-d.settled
}

// settle tells Redis of results, as many at once as there are.
func (w *Worker) settle(over <-chan struct{}) {
	for {
		var first settlement
		select {
		case <-over:
			return
		case first = <-w.settling:
		}
		some := []settlement{first}
		for len(some) < 200 && len(w.settling) > 0 {
			some = append(some, <-w.settling)
		}
		args := []any{w.key("job", "")}
		for _, each := range some {
			d := each.delivery
			args = append(args, d.stream, w.consumer, w.key("result", ""), w.key("replies", d.call.ReplyTo), 1, d.entry, d.call.CallID, each.sealed)
			args = append(args, d.places...)
		}
		w.insist(func(conn redis.Conn) error { // twice counts once
			_, err := w.run(conn, "settle", nil, args...)
			return err
		})
		for _, each := range some {
			close(each.delivery.settled)
		}
	}
}

func (w *Worker) bury(d *delivery, reason string) {
	w.log.Warn("buried a message", "reason", reason, "entry", d.entry)
	w.insist(func(conn redis.Conn) error {
		_, err := w.run(conn, "bury", []string{d.stream, w.Namespace + ":dead", w.Namespace + ":counters"},
			group, 10000, homeOf(w.placeOf(d.stream).queue), 65536, d.entry, reason)
		return err
	})
}

// lookForCancels settles running calls that are no longer wanted, and tells their functions.
func (w *Worker) lookForCancels() error {
	w.mutex.Lock()
	var running []*delivery
	var marks []any
	for _, d := range w.held {
		if d.isUnderWay && !d.isSettled {
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
			if _, err := w.seal.Open(purposeCancel, running[i].call.CallID, said); err == nil {
				go func(d *delivery) {
					w.ended(d, failed("cancelled", "%s was cancelled while it ran.", d.call.Tool))
					d.stop()
				}(running[i])
			}
		}
		return err
	})
}

// handBackUnknown returns messages that a reply has brought which never came here.
func (w *Worker) handBackUnknown() error {
	return w.once(func(conn redis.Conn) error {
		for _, stream := range w.streams() {
			pending, err := redis.Values(conn.Do("XPENDING", stream, group, "IDLE", 2500, "-", "+", 1000, w.consumer))
			if err != nil {
				return nil // no such group yet
			}
			var unknown []any
			for _, each := range pending {
				row, _ := redis.Values(each, nil)
				entry, _ := redis.String(row[0], nil)
				w.mutex.Lock()
				if w.held[stream+entry] == nil {
					unknown = append(unknown, entry)
				}
				w.mutex.Unlock()
			}
			if len(unknown) > 0 {
				if _, err := w.run(conn, "park", []string{stream}, append([]any{group, w.consumer, returnedTo, 1}, unknown...)...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// drain withdraws the announcement and lets calls end within the grace.
func (w *Worker) drain() {
	_ = w.once(func(conn redis.Conn) error {
		_ = conn.Send("DEL", w.key("worker", w.name))
		_, err := conn.Do("ZREM", w.Namespace+":workers", w.name)
		return err
	})
	until := time.After(w.Grace)
	for {
		w.mutex.Lock()
		left := len(w.held)
		w.looked = time.Now()
		w.mutex.Unlock()
		if left == 0 {
			return
		}
		w.log.Info("letting calls end", "calls", left)
		select {
		case <-w.freed:
		case <-time.After(time.Second):
		case <-until:
			return
		case <-w.gone:
			return
		}
	}
}

// giveUp ends what has outlived the grace: in doubt what must not happen twice, and back what may be repeated. The latter
// does not count: no number of restarts makes a call one that kills its workers.
func (w *Worker) giveUp() {
	w.mutex.Lock()
	var inDoubt, back []*delivery
	for _, d := range w.held {
		switch {
		case d.isSettled:
		case d.isOnce && d.isUnderWay:
			inDoubt = append(inDoubt, d)
		default:
			d.isSettled = true // what it still comes to is not told
			back = append(back, d)
		}
	}
	w.mutex.Unlock()
	var telling sync.WaitGroup
	for _, d := range inDoubt {
		telling.Add(1)
		go func() { defer telling.Done(); w.ended(d, failed("in_doubt", endings["in_doubt"], d.call.Tool)) }()
	}
	for _, d := range back {
		_ = w.once(func(conn redis.Conn) error {
			_, err := w.run(conn, "park", []string{d.stream}, group, w.consumer, returnedTo, 1, d.entry)
			return err
		})
	}
	told := make(chan struct{})
	go func() { telling.Wait(); close(told) }()
	select {
	case <-told:
	case <-time.After(tellWithin): // where Redis is away, leave or a lapsed lease does it
	}
}

// leave ends the consumer, and gives back what is left by mischance, which counts as a delivery.
func (w *Worker) leave() {
	streams := w.streams()
	defer w.retireLanes()
	_ = w.once(func(conn redis.Conn) error {
		_, err := w.run(conn, "leave", append([]string{w.key("lease", w.consumer)}, streams...), group, returnedTo, w.consumer, goneMS)
		return err
	})
}
