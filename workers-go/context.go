package toolfleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	progressEvery   = 200 * time.Millisecond
	keptS           = 86400
	repliesMax      = 200000
	checkpointKeptS = 3600 // beyond the call's deadline
	maxCheckpoint   = 64 << 10
)

// Context is one call as its tool sees it. It ends when the call is cancelled, its time is up, or the worker gives it up.
type Context struct {
	context.Context
	CallID, RunID, Tool, Tenant, Subject string
	// Attempt is which delivery this is, from 1; more after a worker was lost.
	Attempt int
	// Deadline is when nobody waits for the result any more.
	Deadline time.Time
	// Values is the caller's own JSON object, hidden from the model; State what the run's tools share.
	Values, State json.RawMessage

	worker    *Worker
	delivery  *delivery
	telling   sync.Mutex
	mutex     sync.Mutex
	newest    []byte
	isTelling bool
}

// IdempotencyKey is the same for every attempt at this call: hand it to services that drop repeats.
func (c *Context) IdempotencyKey() string { return c.CallID }

// CallbackURL is where another system may POST the result of the job that this call submits. It is as good as the call
// itself, and expires with it.
func (c *Context) CallbackURL() (string, error) {
	base := strings.TrimRight(c.worker.PublicURL, "/")
	if base == "" {
		return "", errors.New("no address of the HTTP API is known: set TOOLFLEET_PUBLIC_URL where the workers run")
	}
	expires := strconv.FormatInt(int64(c.delivery.call.DeadlineS), 10)
	signature := c.worker.seal.MAC(purposeCallback+c.CallID+"\x00", []byte(expires))
	return fmt.Sprintf("%s/v1/handles/%s/complete?expires=%s&signature=%s", base, url.PathEscape(c.CallID), expires, signature), nil
}

// Progress tells whoever waits how far the call has come, from 0 to 1. It never waits; of more than five in a second the
// newest is told, the last one before the result, and what Redis does not take is lost: the next one says more.
func (c *Context) Progress(fraction float64, message string) {
	if !(fraction >= 0) { // also what is no number
		fraction = 0
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.newest = encoded(map[string]any{"type": "progress", "fraction": min(fraction, 1), "message": message})
	if !c.isTelling {
		c.isTelling = true
		go c.tell()
	}
}

// tell reports the newest until there is nothing new, or the call has ended.
func (c *Context) tell() {
	for c.tellNewest() {
		time.Sleep(progressEvery)
	}
}

// tellNewest reports what is new, behind what is being reported, and says whether there was anything.
func (c *Context) tellNewest() bool {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mutex.Lock()
	text := c.newest
	c.newest, c.isTelling = nil, text != nil && c.Err() == nil
	isOver := !c.isTelling
	c.mutex.Unlock()
	if isOver {
		return false
	}
	sealed := c.worker.seal.Close(purposeProgress, c.CallID, text)
	replies := c.worker.key("replies", c.delivery.call.ReplyTo)
	_ = c.worker.once(func(conn redis.Conn) error {
		_ = conn.Send("SET", c.worker.key("progress", c.CallID), sealed, "EX", keptS)
		_ = conn.Send("XADD", replies, "MAXLEN", "~", repliesMax, "*", "c", c.CallID, "p", sealed)
		_, err := conn.Do("EXPIRE", replies, keptS)
		return err
	})
	return true
}

// Checkpoint keeps what a later attempt at this call goes on from: any JSON of up to 64 KiB.
func (c *Context) Checkpoint(data any) error {
	text, err := encodedAny(data)
	if err != nil {
		return err
	}
	if len(text) > maxCheckpoint {
		return fmt.Errorf("a checkpoint is JSON of at most %d bytes: keep the work itself elsewhere", maxCheckpoint)
	}
	c.delivery.hasCheckpoint.Store(true)
	conn := c.worker.pool.Get()
	defer conn.Close()
	_, err = conn.Do("SET", c.worker.key("checkpoint", c.CallID), c.worker.seal.Close(purposeCheckpoint, c.CallID, text),
		"EXAT", c.Deadline.Unix()+checkpointKeptS)
	return err
}

// LastCheckpoint reads what an earlier attempt gave to Checkpoint last, and says whether there was any.
func (c *Context) LastCheckpoint(into any) (bool, error) {
	conn := c.worker.pool.Get()
	defer conn.Close()
	sealed, err := conn.Do("GET", c.worker.key("checkpoint", c.CallID))
	bytes, is := sealed.([]byte)
	if err != nil || !is {
		return false, err
	}
	text, err := c.worker.seal.Open(purposeCheckpoint, c.CallID, bytes)
	if err != nil {
		return false, err
	}
	return true, decode(text, into)
}

// encoded is JSON as it is: <, > and & are not escaped. What is given to it has a JSON form.
func encoded(value any) []byte {
	text, err := encodedAny(value)
	if err != nil {
		panic(err)
	}
	return text
}

func encodedAny(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimRight(text.Bytes(), "\n"), err
}
