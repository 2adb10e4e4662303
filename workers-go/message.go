package toolfleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	maxMessageBytes = 4 << 20
	maxHeaderBytes  = 16 << 10
	maxDeliveries   = 5
	claimBeyondS    = 600 // what a claim outlives the call's deadline by
	claimEnoughS    = 300
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
	Context   json.RawMessage `json:"context"`
	State     json.RawMessage `json:"state"`
	contract  string
}

// delivery is one message as it was read: of which stream, and what the server knows of it.
type delivery struct {
	stream, entry      string
	fields             map[string][]byte
	deliveries         int
	claimed, cancelled bool
	looked             bool // fetch has looked for a cancel; a read that waited has not
	began              time.Time
	call               Call
	places             []any
	isOnce             bool
	isUnderWay         bool // these three under the worker's mutex
	isSettled          bool
	stop               func()
	settled            chan struct{} // closed when Redis knows the result
}

// ending is why a message does not become a call of a tool; its text is the reason for the dead letters.
var (
	errNotOurs  = errors.New("passed on")
	errUnsealed = errors.New("unsigned or altered")
	errShape    = errors.New("wrong shape")
)

// openCall returns the call in a message's text if the fleet has signed it. errNotOurs says that it is signed, but of a
// version that is another's to read.
func openCall(seal *Seal, text []byte, mac string) (Call, error) {
	var call Call
	if len(text) > maxMessageBytes {
		return call, fmt.Errorf("larger than %d bytes", maxMessageBytes)
	}
	if !seal.Holds(purposeCall, text, mac) {
		return call, errUnsealed
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
		{"v", &call.V, false}, {"call_id", &call.CallID, true}, {"run_id", &call.RunID, true}, {"tool", &call.Tool, true},
		{"deadline_unix_s", &call.DeadlineS, true}, {"reply_to", &call.ReplyTo, true}, {"arguments", &call.Arguments, true},
		{"tenant", &call.Tenant, false}, {"subject", &call.Subject, false},
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
				return call, errNotOurs
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
	return call, nil
}

// believe reads the message. An error other than errNotOurs means that it is to be buried for that reason.
func (d *delivery) believe(seal *Seal) error {
	body, head, properties := d.fields["b"], d.fields["h"], d.fields["p"]
	if body == nil || len(body) > maxMessageBytes || len(head) > maxHeaderBytes || len(properties) > maxHeaderBytes {
		return errors.New("not a message")
	}
	var headers struct {
		ID       string          `json:"id"`
		Task     string          `json:"task"`
		Contract string          `json:"contract"`
		Claim    json.RawMessage `json:"claim"`
	}
	var parts []json.RawMessage
	var signed []string
	if json.Unmarshal(head, &headers) != nil || !json.Valid(properties) || json.Unmarshal(body, &parts) != nil ||
		len(parts) != 3 || json.Unmarshal(parts[0], &signed) != nil || len(signed) != 2 {
		return errors.New("not a message")
	}
	call, err := openCall(seal, []byte(signed[0]), signed[1])
	if err != nil {
		return err
	}
	if call.CallID != headers.ID || call.Tool != headers.Task || string(d.fields["id"]) != call.CallID {
		return errors.New("not the call that it says")
	}
	call.contract = headers.Contract
	d.call, d.isOnce = call, headers.Claim != nil
	d.deliveries += number(d.fields["earlier"])
	d.places = placesOf(d.fields["gates"])
	return nil
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
		row, _ := redis.Values(each, nil)
		if len(row) < 7 {
			continue
		}
		position, _ := redis.Int(row[0], nil)
		entry, _ := redis.String(row[1], nil)
		count, _ := redis.Int(row[2], nil)
		claimed, _ := redis.Int(row[3], nil)
		cancelled, _ := redis.Int(row[4], nil)
		read = append(read, &delivery{
			stream: streams[position-1], entry: entry, fields: fieldsOf(row[6]), deliveries: count,
			claimed: claimed == 1, cancelled: cancelled == 1, looked: true, began: time.Now(),
		})
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
				stream: stream, entry: entry, fields: fieldsOf(row[1]), deliveries: 1, began: time.Now(),
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
