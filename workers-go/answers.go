package toolfleet

import (
	"fmt"
	"time"
)

// Returned is what a function returns that has more to say than its content: state for the run's other tools, attributes for
// the caller.
type Returned struct {
	Content           string
	State, Attributes map[string]any
}

// Submitted is what a function returns whose work goes on in another system. Until its deadline the call then waits for that
// system to POST the result to Context.CallbackURL, or for somebody to do so by hand (toolfleet calls complete): the worker
// does not ask.
type Submitted struct {
	// ExternalID is what the other system calls it.
	ExternalID string
	// Message is for the model; AskAfter is when it may ask, 5 s if left out.
	Message  string
	AskAfter time.Duration
}

// RetryAfter is the error of a function that has had no effect and wants to be called again after a while. That does not
// count as an attempt, and so long no other call starts that shares one of the tool's limits. With TellModel the model is
// told instead, and so it is where the call's deadline comes first.
type RetryAfter struct {
	Wait      time.Duration
	TellModel bool
}

func (r RetryAfter) Error() string {
	return fmt.Sprintf("rate limited, try again in %g s", r.Wait.Seconds())
}
