package toolfleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	maxHeaderBytes = 16 << 10
	claimBeyondS   = 600 // what a claim outlives the call's deadline by
	claimEnoughS   = 300
)

// Call is a signed call, see wire/v1/schemas/call.json.
type Call struct {
	V         int             `json:"v"`
	CallID    string          `json:"call_id"`
	RunID     string          `json:"run_id"`
	Tool      string          `json:"tool"`
	Arguments string          `json:"arguments"`
	DeadlineS float64         `json:"deadline_unix_s"`
	ReplyTo   string          `json:"reply_to"`
	Tenant    string          `json:"tenant"`
	Subject   string          `json:"subject"`
	Version   int             `json:"version"` // of its tool, and of no other; 0 where that has none
	Context   json.RawMessage `json:"context"`
	State     json.RawMessage `json:"state"`
	contract  string
	text      []byte // as it was signed
	isUndoing bool
}

// delivery is one message as it was read: of which stream, and what the server knows of it.
type delivery struct {
	stream, entry      string
	fields             map[string][]byte
	deliveries         int
	claimed, cancelled bool
	isLooked           bool // fetch has looked for a cancel; a read that waited has not
	began              time.Time
	call               Call
	places             []any
	isOnce             bool
	hasCheckpoint      atomic.Bool
	isUnderWay         atomic.Bool
	interrupted        chan interruption
}

// An interruption is why nobody waits for a running tool any more.
type interruption string

const (
	timedOut  interruption = "timed_out"
	cancelled interruption = "cancelled"
	shutdown  interruption = "shutdown"
)

// interrupt has nobody wait for the tool any more; the first reason counts.
func (d *delivery) interrupt(why interruption) {
	select {
	case d.interrupted <- why:
	default:
	}
}

// doubt is what a model is told of an effect that was interrupted.
func (d *delivery) doubt() string {
	if d.isOnce {
		return " Its effect may or may not have happened."
	}
	return ""
}

var (
	errVersion = errors.New("of another version") // signed, and another's to read
	errShape   = errors.New("wrong version or shape")
	errTooMuch = errors.New("too large")
	errNoCall  = errors.New("not a message")
)

// openCall returns the call in a message's text if the fleet has signed it.
func openCall(seal *Seal, text []byte, mac string, most int) (Call, error) {
	call := Call{text: text}
	if len(text) > most {
		return call, errTooMuch
	}
	if !seal.Holds(purposeCall, text, mac) {
		return call, errUnsigned
	}
	// Names of fields are compared exactly, which encoding/json does not do for a struct.
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return call, errShape
	}
	wanted := []struct {
		name       string
		into       any
		isRequired bool
	}{
		// What every version of a call says, then which it is.
		{"call_id", &call.CallID, true}, {"run_id", &call.RunID, true}, {"tool", &call.Tool, true},
		{"deadline_unix_s", &call.DeadlineS, true}, {"reply_to", &call.ReplyTo, true}, {"v", &call.V, false},
		{"arguments", &call.Arguments, true},
		{"tenant", &call.Tenant, false}, {"subject", &call.Subject, false}, {"version", &call.Version, false},
	}
	for _, field := range wanted {
		value, is := fields[field.name]
		if is && (bytes.Equal(value, []byte("null")) || json.Unmarshal(value, field.into) != nil) || !is && field.isRequired {
			return call, errShape
		}
		if field.name == "v" {
			if !is {
				call.V = 1
			} else if call.V != 1 {
				return call, errVersion
			}
		}
	}
	for name, into := range map[string]*json.RawMessage{"context": &call.Context, "state": &call.State} {
		if *into = fields[name]; *into == nil {
			*into = json.RawMessage("{}")
		}
		if bytes.TrimSpace(*into)[0] != '{' {
			return call, errShape
		}
	}
	undoes := fields["undoes"]
	call.isUndoing = undoes != nil && !bytes.Equal(undoes, []byte("null"))
	return call, nil
}

// A verdict is what becomes of a message, see docs/wire.md (Believe): one of these, or the kind of failure that ends it.
const (
	toRun    = "run"
	toClaim  = "claim" // and run, if no copy of it has
	toPassOn = "pass_on"
	toBury   = "bury"
)

// judge decides what becomes of a message; for one to bury it says why. It asks nobody.
func (d *delivery) judge(seal *Seal, tools map[string]Served, now float64, limits Settings) (string, error) {
	if d.deliveries > limits.MaxDeliveries+1 {
		return toBury, errors.New("delivered too often")
	}
	switch err := d.open(seal, limits.MaxMessageBytes); {
	case errors.Is(err, errVersion):
		return toPassOn, nil
	case err != nil:
		return toBury, err
	}
	tool, isServed := tools[d.call.Tool]
	if isServed && d.call.Version != 0 && d.call.Version != tool.Version {
		return toPassOn, nil
	}
	if !isServed || d.call.contract != "" && d.call.contract != tool.digest {
		return toPassOn, nil
	}
	d.isOnce = d.isOnce || tool.Effect == Once
	leftS, over := d.call.DeadlineS-now, string(d.fields["over"])
	switch {
	case d.isOnce && d.deliveries > 1:
		return "in_doubt", nil
	case d.deliveries > limits.MaxDeliveries:
		return "crashed", nil
	case leftS <= 0 || over == "expired":
		return "expired", nil
	case d.cancelled || over == "cancelled":
		return "cancelled", nil
	case d.isOnce && (!d.claimed || float64(number(d.fields["claim"])) < leftS+claimEnoughS):
		return toClaim, nil
	}
	return toRun, nil
}

// open reads the message. An error other than errVersion means that it is to be buried for that reason.
func (d *delivery) open(seal *Seal, most int) error {
	body, head, properties := d.fields["b"], d.fields["h"], d.fields["p"]
	if body == nil || len(body) > most || len(head) > maxHeaderBytes || len(properties) > maxHeaderBytes {
		return errNoCall
	}
	var headers struct {
		ID       *string         `json:"id"`
		Task     *string         `json:"task"`
		Contract string          `json:"contract"`
		Claim    json.RawMessage `json:"claim"`
		Packed   json.RawMessage `json:"compression"` // no body of a call is
	}
	var others map[string]any
	var parts []json.RawMessage
	var signed []string
	if json.Unmarshal(head, &headers) != nil || json.Unmarshal(properties, &others) != nil || json.Unmarshal(body, &parts) != nil ||
		len(parts) != 3 || json.Unmarshal(parts[0], &signed) != nil || len(signed) != 2 || headers.ID == nil || headers.Task == nil || headers.Packed != nil {
		return errNoCall
	}
	call, err := openCall(seal, []byte(signed[0]), signed[1], most)
	if err != nil && !errors.Is(err, errVersion) {
		return err
	}
	if call.CallID != *headers.ID || call.Tool != *headers.Task || string(d.fields["id"]) != call.CallID {
		return errors.New("the envelope belongs to another call or tool")
	}
	call.contract = headers.Contract
	d.call, d.isOnce = call, headers.Claim != nil
	d.deliveries += number(d.fields["earlier"])
	d.places = placesOf(d.fields["gates"])
	return err
}

// placesOf returns what settle is told of the limits at which a call holds a place: how many, and their names.
func placesOf(text []byte) []any {
	if len(text) == 0 {
		return []any{""}
	}
	var gates [][]any
	_ = json.Unmarshal(text, &gates) // what tells of no limit is none
	places := []any{0}
	for _, gate := range gates {
		if len(gate) >= 3 && gate[0] == "concurrency" {
			places = append(places, fmt.Sprintf("concurrency|%v|%v", gate[1], gate[2]))
		}
	}
	places[0] = len(places) - 1
	return places
}

func number(text []byte) int {
	n, _ := strconv.Atoi(string(text))
	return n
}

// deliveriesOf reads fetch's reply, behind its first number.
func deliveriesOf(reply []any, streams []string) []*delivery {
	read := make([]*delivery, 0, len(reply))
	for _, each := range reply {
		kind, _ := redis.Values(each, nil)
		if len(kind) < 7 {
			continue
		}
		position, _ := redis.Int(kind[0], nil)
		count, _ := redis.Int(kind[1], nil)
		claimed, _ := redis.Int(kind[2], nil)
		cancelled, _ := redis.Int(kind[3], nil)
		names, _ := redis.Strings(kind[5], nil)
		told, _ := redis.ByteSlices(kind[6], nil)
		for width := 1 + len(names); len(told) >= width; told = told[width:] {
			fields := map[string][]byte{}
			for i, name := range names {
				fields[name] = told[1+i]
			}
			read = append(read, &delivery{
				stream: streams[position-1], entry: string(told[0]), fields: fields, deliveries: count,
				claimed: claimed == 1, cancelled: cancelled == 1, isLooked: true,
			})
		}
	}
	return read
}

// deliveriesOfRead reads the reply of XREADGROUP: messages that were delivered once, and not claimed.
func deliveriesOfRead(reply []any) []*delivery {
	var read []*delivery
	for _, each := range reply {
		pair, _ := redis.Values(each, nil)
		if len(pair) != 2 {
			continue
		}
		stream, _ := redis.String(pair[0], nil)
		entries, _ := redis.Values(pair[1], nil)
		for _, one := range entries {
			row, _ := redis.Values(one, nil)
			if len(row) != 2 {
				continue
			}
			entry, _ := redis.String(row[0], nil)
			read = append(read, &delivery{
				stream: stream, entry: entry, fields: fieldsOf(row[1]), deliveries: 1,
			})
		}
	}
	return read
}

func fieldsOf(reply any) map[string][]byte {
	flat, _ := redis.ByteSlices(reply, nil)
	fields := map[string][]byte{}
	for i := 0; i+1 < len(flat); i += 2 {
		fields[string(flat[i])] = flat[i+1]
	}
	return fields
}
