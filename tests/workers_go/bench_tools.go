// The tools of benchmarks/contenders/toolfleet_tools.py.
package main

import (
	"time"

	toolfleet "github.com/toolfleet/toolfleet/workers-go"
)

type argument struct {
	X int `json:"x"`
}

func noop(_ *toolfleet.Context, asked argument) (any, error) { return asked, nil }

func sleep(_ *toolfleet.Context, asked argument) (any, error) {
	time.Sleep(100 * time.Millisecond)
	return asked, nil
}

func main() {
	settings := toolfleet.SettingsFromEnvironment()
	settings.Concurrency = 1000
	worker, err := toolfleet.NewWorker(settings,
		toolfleet.Func(toolfleet.Tool{Name: "noop", Description: "Return the argument, once."}, noop),
		toolfleet.Func(toolfleet.Tool{Name: "sleep", Description: "Wait, then return the argument."}, sleep),
	)
	if err != nil {
		toolfleet.Exit(err)
	}
	worker.Main()
}
