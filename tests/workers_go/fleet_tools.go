// What tests/fleet/fleet_tools.py serves, as far as the suite for all pools asks for it, and the stage's tools.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	toolfleet "github.com/toolfleet/toolfleet/workers-go"
)

type nothing struct{}

type anything struct {
	Value json.RawMessage `json:"value" doc:"what to give back"`
}

type sum struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

type point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

type staged struct {
	Stage string `json:"stage"`
}

type ledger struct {
	Path  string `json:"path"`
	Times int    `json:"times,omitempty"`
}

type ValueError struct{ text string }

func (e ValueError) Error() string { return e.text }

type price struct{}

func (price) MarshalJSON() ([]byte, error) { return []byte(`"9.90"`), nil }

func readOnly(name, description string) toolfleet.Tool {
	return toolfleet.Tool{Name: name, Description: description, Effect: toolfleet.ReadOnly}
}

func about(ctx *toolfleet.Context) map[string]any {
	var checkpoint any
	if _, err := ctx.LastCheckpoint(&checkpoint); err != nil {
		log.Print(err)
	}
	return map[string]any{
		"call_id": ctx.CallID, "attempt": ctx.Attempt, "context": ctx.Values, "pid": os.Getpid(), "key": ctx.IdempotencyKey(),
		"checkpoint": checkpoint,
	}
}

func whoAmI(ctx *toolfleet.Context, _ nothing) (any, error) { return about(ctx), nil }

func echo(_ *toolfleet.Context, asked anything) (any, error) {
	var text string
	if asked.Value[0] == '"' && json.Unmarshal(asked.Value, &text) == nil {
		return text, nil
	}
	return asked.Value, nil
}

// play does as the stage says, until its context ends.
func play(ctx *toolfleet.Context, asked staged) (any, error) {
	stage, err := net.Dial("unix", asked.Stage)
	if err != nil {
		return nil, err
	}
	defer stage.Close()
	leave := func(how string) { _, _ = fmt.Fprint(stage, how) }
	text, _ := json.Marshal(about(ctx))
	_, _ = fmt.Fprintf(stage, "%s\n", text)
	orders := make(chan map[string]any)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(stage); lines.Scan(); {
			var order map[string]any
			_ = json.Unmarshal(lines.Bytes(), &order)
			orders <- order
		}
	}()
	for {
		select {
		case <-ctx.Done():
			leave("cancelled")
			return nil, ctx.Err()
		case order, is := <-orders:
			if !is {
				return nil, errors.New("the stage is gone")
			}
			if value, is := order["return"]; is {
				leave("returned")
				return value, nil
			}
			if reason, is := order["fail"]; is {
				return nil, errors.New(reason.(string))
			}
			if data, is := order["checkpoint"]; is {
				if err := ctx.Checkpoint(data); err != nil {
					return nil, err
				}
			}
			if said, is := order["progress"].([]any); is {
				ctx.Progress(said[0].(float64), said[1].(string))
			}
			if seconds, is := order["spin"].(float64); is {
				for until := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(until); {
				}
			}
			if seconds, is := order["retry_after"].(float64); is {
				return nil, toolfleet.RetryAfter{Wait: time.Duration(seconds * float64(time.Second))}
			}
		}
	}
}

// lived notes in a file that this process was here, and returns how many were before.
func lived(path string) int {
	before, _ := os.ReadFile(path)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		defer file.Close()
		_, _ = fmt.Fprintln(file, os.Getpid())
	}
	return strings.Count(string(before), "\n")
}

func die() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }

func main() {
	go func() { // whoever started it is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	settings := toolfleet.SettingsFromEnvironment()
	settings.Name = os.Getenv("WORKER_NAME")
	settings.Concurrency, _ = strconv.Atoi(os.Getenv("SLOTS"))
	if settings.Concurrency == 0 {
		settings.Concurrency = 8
	}
	narrow := toolfleet.Tool{
		Name: "narrow", Description: "One at a time.", Effect: toolfleet.Idempotent, Concurrency: &toolfleet.Concurrency{AtOnce: 1},
	}
	hurried := readOnly("hurried", "Take longer than allowed.")
	hurried.Timeout = 300 * time.Millisecond
	longJob := readOnly("long_job", "Say how far it has come.")
	longJob.LongRunning = true
	tools := []toolfleet.Served{
		toolfleet.Func(readOnly("echo", "Give back what came."), echo),
		toolfleet.Func(readOnly("blocking_echo", "Give back what came, at once."), echo),
		toolfleet.Func(readOnly("nothing", "Return nothing."), func(*toolfleet.Context, nothing) (any, error) { return nil, nil }),
		toolfleet.Func(toolfleet.Tool{Name: "add", Description: "Add, once."},
			func(_ *toolfleet.Context, asked sum) (any, error) { return asked.A + asked.B, nil }),
		toolfleet.Func(readOnly("mirrored", "Mirror a point."), func(_ *toolfleet.Context, asked struct {
			Point point `json:"point"`
		}) (any, error) {
			return point{X: asked.Point.Y, Y: asked.Point.X}, nil
		}),
		toolfleet.Func(readOnly("price", "What has a JSON form of its own."),
			func(*toolfleet.Context, nothing) (any, error) { return price{}, nil }),
		toolfleet.Func(readOnly("unprintable", "What has none."),
			func(*toolfleet.Context, nothing) (any, error) { return make(chan int), nil }),
		toolfleet.Func(readOnly("wordy", "A long text."), func(_ *toolfleet.Context, asked struct {
			Characters int `json:"characters"`
		}) (any, error) {
			return strings.Repeat("☃", asked.Characters), nil
		}),
		toolfleet.Func(readOnly("fail", "Fail."), func(_ *toolfleet.Context, asked struct {
			Kind string `json:"kind"`
			Text string `json:"text,omitempty"`
		}) (any, error) {
			switch asked.Kind {
			case "value":
				return nil, &ValueError{asked.Text}
			case "panic":
				panic(asked.Text)
			}
			return nil, errors.New(asked.Text)
		}),
		toolfleet.Func(hurried, func(ctx *toolfleet.Context, _ nothing) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
		toolfleet.Func(toolfleet.Tool{Name: "deaf", Description: "Listen to nobody.", Timeout: 100 * time.Millisecond},
			func(*toolfleet.Context, nothing) (any, error) { time.Sleep(2 * time.Second); return nil, nil }),
		toolfleet.Func(readOnly("who_am_i", "What a call knows of itself."), whoAmI),
		toolfleet.Func(readOnly("who_am_i_blocking", "The same."), whoAmI),
		toolfleet.Func(readOnly("parsed_echo", "Give back what was parsed."), func(_ *toolfleet.Context, asked struct {
			Value any `json:"value"`
		}) (any, error) {
			return map[string]any{"value": asked.Value}, nil
		}),
		toolfleet.Func(readOnly("update", "Change what the run's tools share."), func(_ *toolfleet.Context, asked struct {
			State      map[string]any `json:"state,omitempty"`
			Attributes map[string]any `json:"attributes,omitempty"`
		}) (any, error) {
			return toolfleet.Returned{Content: "updated", State: asked.State, Attributes: asked.Attributes}, nil
		}),
		toolfleet.Func(longJob, func(ctx *toolfleet.Context, asked struct {
			Steps int `json:"steps"`
		}) (any, error) {
			for step := 1; step <= asked.Steps; step++ {
				ctx.Progress(float64(step)/float64(asked.Steps), fmt.Sprint("step ", step))
				time.Sleep(50 * time.Millisecond)
			}
			return map[string]any{"steps": asked.Steps}, nil
		}),
		toolfleet.Func(toolfleet.Tool{Name: "elsewhere", Description: "Start a job in another system."},
			func(ctx *toolfleet.Context, asked struct {
				Name string `json:"name"`
			}) (any, error) {
				back, err := ctx.CallbackURL()
				return toolfleet.Submitted{ExternalID: asked.Name, Message: back}, err
			}),
		toolfleet.Func(toolfleet.Tool{Name: "die_once", Description: "End this process without a word."},
			func(_ *toolfleet.Context, asked ledger) (any, error) { lived(asked.Path); die(); return nil, nil }),
		toolfleet.Func(readOnly("die", "The same, the first few times."), func(_ *toolfleet.Context, asked ledger) (any, error) {
			before := lived(asked.Path)
			if before < asked.Times {
				die()
			}
			return fmt.Sprint("survived ", before), nil
		}),
		toolfleet.Func(narrow, play),
		toolfleet.Func(toolfleet.Tool{Name: "play", Description: "Do as the stage says; may be repeated.", Effect: toolfleet.ReadOnly}, play),
		toolfleet.Func(toolfleet.Tool{Name: "play_once", Description: "Do as the stage says; must not be repeated."}, play),
	}
	if schema := os.Getenv("ODD_SCHEMA"); schema != "" {
		tools = append(tools, toolfleet.Func(toolfleet.Tool{Name: "odd", Description: "No schema.", Schema: json.RawMessage(schema)}, whoAmI))
	}
	if settings.Source = os.Getenv("RIVAL"); settings.Source != "" {
		tools = []toolfleet.Served{toolfleet.Func(readOnly("echo", "Another one."), echo)}
	}
	worker, err := toolfleet.NewWorker(settings, tools...)
	if err != nil {
		toolfleet.Exit(err)
	}
	worker.Main()
}
