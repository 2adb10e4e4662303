// Tools whose every effect stands in the ledger of tests/faults, as those of fault_tools.py do.
package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	toolfleet "github.com/toolfleet/toolfleet/workers-go"
)

type asked struct {
	Nonce   string  `json:"nonce"`
	Seconds float64 `json:"seconds"`
}

func work(ctx *toolfleet.Context, a asked) (any, error) {
	half := time.Duration(a.Seconds * float64(time.Second) / 2)
	time.Sleep(half)
	ledger, err := os.OpenFile(os.Getenv("FAULTS_LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer ledger.Close()
	if _, err = fmt.Fprintf(ledger, "%s %s %d %d\n", a.Nonce, ctx.CallID, ctx.Attempt, os.Getpid()); err != nil {
		return nil, err
	}
	time.Sleep(half)
	return a.Nonce, nil
}

func main() {
	go func() { // whoever started it is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	settings := toolfleet.SettingsFromEnvironment()
	settings.Name = os.Getenv("WORKER_NAME")
	worker, err := toolfleet.NewWorker(settings,
		toolfleet.Func(toolfleet.Tool{Name: "once_in_go", Description: "Has an effect that must not happen twice."}, work),
		toolfleet.Func(toolfleet.Tool{
			Name: "again_in_go", Description: "Has an effect that may happen twice.", Effect: toolfleet.Idempotent,
		}, work),
	)
	if err != nil {
		toolfleet.Exit(err)
	}
	worker.Main()
}
