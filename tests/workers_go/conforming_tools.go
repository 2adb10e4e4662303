// Tools that do in Go what tests/fleet/fleet_tools.py does in Python. Built and run by the tests of this folder.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	toolfleet "github.com/toolfleet/toolfleet/workers-go"
)

type nothing struct{}

type value struct {
	Value any `json:"value" doc:"what to give back"`
}

type sum struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

type failure struct {
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"`
}

type seconds struct {
	Seconds float64 `json:"seconds"`
	Ledger  string  `json:"ledger,omitempty" doc:"a file that gets a line when the tool begins and one when it ends"`
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func write(ledger, line string) error {
	if ledger == "" {
		return nil
	}
	file, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintln(file, line)
	return err
}

func sleep(ctx *toolfleet.Context, asked seconds) (any, error) {
	if err := write(asked.Ledger, "began "+ctx.CallID); err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Duration(asked.Seconds * float64(time.Second))):
	case <-ctx.Done():
		return nil, write(asked.Ledger, "stopped "+ctx.CallID)
	}
	return fmt.Sprintf("slept %v s", asked.Seconds), write(asked.Ledger, "ended "+ctx.CallID)
}

func main() {
	settings := toolfleet.SettingsFromEnvironment()
	settings.Concurrency = 50
	settings.Grace = 5 * time.Second
	worker, err := toolfleet.NewWorker(settings)
	must(err)
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "echo", Description: "Give back what came.", Effect: toolfleet.ReadOnly},
		func(_ *toolfleet.Context, asked struct {
			Value json.RawMessage `json:"value"`
		}) (any, error) {
			var text string
			if json.Unmarshal(asked.Value, &text) == nil && string(asked.Value) != "null" {
				return text, nil
			}
			return asked.Value, nil
		}))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "parsed_echo", Description: "Give back what was parsed.", Effect: toolfleet.ReadOnly},
		func(_ *toolfleet.Context, asked value) (any, error) { return map[string]any{"value": asked.Value}, nil }))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "add", Description: "Add, once."},
		func(_ *toolfleet.Context, asked sum) (any, error) { return asked.A + asked.B, nil }))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "nothing", Description: "Return nothing.", Effect: toolfleet.ReadOnly},
		func(*toolfleet.Context, nothing) (any, error) { return nil, nil }))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "unprintable", Description: "No JSON form.", Effect: toolfleet.ReadOnly},
		func(*toolfleet.Context, nothing) (any, error) { return make(chan int), nil }))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "wordy", Description: "A long text.", Effect: toolfleet.ReadOnly},
		func(_ *toolfleet.Context, asked struct {
			Characters int `json:"characters"`
		}) (any, error) {
			return strings.Repeat("☃", asked.Characters), nil
		}))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "fail", Description: "Fail.", Effect: toolfleet.ReadOnly},
		func(_ *toolfleet.Context, asked failure) (any, error) {
			if asked.Kind == "panic" {
				panic(asked.Text)
			}
			return nil, errors.New(asked.Text)
		}))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "hurried", Description: "Too slow.", Effect: toolfleet.ReadOnly, Timeout: 300 * time.Millisecond},
		func(ctx *toolfleet.Context, _ nothing) (any, error) { <-ctx.Done(); return nil, ctx.Err() }))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "who_am_i", Description: "What a call knows.", Effect: toolfleet.ReadOnly},
		func(ctx *toolfleet.Context, _ nothing) (any, error) {
			return map[string]any{"call_id": ctx.CallID, "attempt": ctx.Attempt, "context": ctx.Values, "key": ctx.IdempotencyKey(), "left": time.Until(ctx.Deadline) > 0, "pid": os.Getpid()}, nil
		}))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "sleep_once", Description: "Sleep, with an effect."}, sleep))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "sleep_again", Description: "Sleep; may be repeated.", Effect: toolfleet.Idempotent}, sleep))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "spin", Description: "Keep a processor busy.", Effect: toolfleet.Idempotent},
		func(_ *toolfleet.Context, asked seconds) (any, error) {
			for until := time.Now().Add(time.Duration(asked.Seconds * float64(time.Second))); time.Now().Before(until); {
			}
			return "spun", nil
		}))
	must(toolfleet.Add(worker, toolfleet.Tool{Name: "steps", Description: "Report steps, and go on from the last one.", Effect: toolfleet.Idempotent},
		func(ctx *toolfleet.Context, asked struct {
			Steps  int    `json:"steps"`
			Ledger string `json:"ledger"`
		}) (any, error) {
			var done int
			if _, err := ctx.LastCheckpoint(&done); err != nil {
				return nil, err
			}
			first := done
			for ; done < asked.Steps; done++ {
				if err := write(asked.Ledger, fmt.Sprint("step ", done)); err != nil {
					return nil, err
				}
				if err := ctx.Checkpoint(done + 1); err != nil {
					return nil, err
				}
				ctx.Progress(float64(done+1)/float64(asked.Steps), fmt.Sprint("step ", done))
				select {
				case <-time.After(250 * time.Millisecond):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return fmt.Sprintf("attempt %d began at step %d", ctx.Attempt, first), nil
		}))
	must(worker.Main())
}
