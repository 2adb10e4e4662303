package toolfleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xeipuuv/gojsonschema"
)

// maxDigits is what our own readers take.
const maxDigits = 4300

// Effect says what a repeat of a call would do.
type Effect string

const (
	// Once is the default: a call whose worker is lost after it began is never run again; it ends in doubt.
	Once Effect = "once"
	// Idempotent calls are delivered again when their worker is lost.
	Idempotent Effect = "idempotent"
	// ReadOnly calls have no effect, and are delivered again likewise.
	ReadOnly Effect = "read_only"
)

// Tool is what the fleet is told of a function.
type Tool struct {
	Name        string
	Description string
	Effect      Effect
	// Queue that its calls go to; "io" unless said otherwise.
	Queue string
	// Timeout of one call; none beyond the call's deadline if zero.
	Timeout time.Duration
	// Patience is how long a model waits before it gets a handle in place of the result; LongRunning says not at all.
	Patience    time.Duration
	LongRunning bool
	// RequiresApproval has a person asked first; ReturnDirect ends the run with the result.
	RequiresApproval, ReturnDirect bool
	Tags                           []string
	// Schema is the JSON Schema of the arguments. Left out, Func derives it from the type of the function's argument.
	Schema json.RawMessage
	// Rate and Concurrency are held in the whole fleet, whoever serves the tool.
	Rate        *Rate
	Concurrency *Concurrency
	// Version tells versions apart that are live at once: a run goes on with the one that it began with. 0 for none.
	Version int
}

// Rate is how many calls may start in a second, and how many at once after a pause (1 if left out).
type Rate struct {
	PerS  float64 `json:"per_s"`
	Burst int     `json:"burst"`
	Key   KeyFrom `json:"key"`
}

// Concurrency is how many calls may run at the same time.
type Concurrency struct {
	AtOnce int     `json:"at_once"`
	Key    KeyFrom `json:"key"`
}

// KeyFrom says which calls share a limit: all of the "fleet" (if left out), those of one "tenant", or those with the same
// value under Name in the caller's "context" or as "argument".
type KeyFrom struct {
	Source string `json:"source"`
	Name   string `json:"name"`
}

// Served is a tool with its function.
type Served struct {
	Tool
	schema *gojsonschema.Schema
	digest string
	call   func(ctx *Context, arguments []byte) (any, error)
	wrong  error
}

// toolName is what every provider of models takes.
var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Func makes a tool of a function. Arguments are validated against the schema and then read into A: a struct whose fields
// have tags `json:"name"` and `doc:"what it is for"`, or json.RawMessage for the JSON as it came. A field with `,omitempty`
// or of a pointer type may be left out. Whole numbers keep all their digits: an int64 refuses what it cannot hold, and
// where the type is any they come as json.Number. What is wrong with the tool, NewWorker says.
//
// A string that the function returns is what the model reads; nil reads "Done", anything else its JSON. See also
// Returned, Submitted and RetryAfter.
func Func[A any](tool Tool, function func(ctx *Context, arguments A) (any, error)) Served {
	served := Served{Tool: tool, call: func(ctx *Context, arguments []byte) (any, error) {
		var read A
		if raw, is := any(&read).(*json.RawMessage); is {
			*raw = arguments
		} else if err := decode(arguments, &read); err != nil {
			return nil, badArguments{err.Error()}
		}
		return function(ctx, read)
	}}
	if err := served.complete(reflect.TypeFor[A]()); err != nil {
		served.wrong = misconfigured("tool %s: %s", tool.Name, err)
	}
	return served
}

func (s *Served) complete(argument reflect.Type) (err error) {
	orElse(&s.Effect, Once)
	orElse(&s.Queue, "io")
	if !toolName.MatchString(s.Name) || s.Description == "" {
		return errors.New("it needs a description, and a name: a letter or _, then up to 63 of letters, digits, _ and -")
	}
	if s.Schema == nil {
		derived, err := schemaOf(argument)
		if err != nil {
			return err
		}
		s.Schema = encoded(derived)
	}
	if s.schema, err = gojsonschema.NewSchemaLoader().Compile(gojsonschema.NewBytesLoader(s.Schema)); err != nil {
		return fmt.Errorf("not a JSON Schema: %w", err)
	}
	if s.Rate != nil {
		if s.Rate.PerS <= 0 {
			return errors.New("a Rate is more than 0 a second")
		}
		orElse(&s.Rate.Burst, 1)
		orElse(&s.Rate.Key.Source, "fleet")
	}
	if s.Version < 0 || s.Version > math.MaxInt32 {
		return errors.New("a Version is a whole number from 1 on")
	}
	if s.Concurrency != nil {
		if s.Concurrency.AtOnce < 1 {
			return errors.New("Concurrency is at least 1 at once")
		}
		orElse(&s.Concurrency.Key.Source, "fleet")
	}
	meaning := sha256.Sum256(encoded([]any{s.Name, s.Schema, s.Effect, s.Queue, s.Timeout, s.LongRunning}))
	if s.Version != 0 {
		meaning = sha256.Sum256(encoded([]any{meaning[:], s.Version}))
	}
	s.digest = hex.EncodeToString(meaning[:])[:12]
	return nil
}

// spec is what is announced of a tool.
func (s *Served) spec() map[string]any {
	said := map[string]any{
		"v": 1, "name": s.Name, "description": s.Description, "input_schema": s.Schema, "effect": s.Effect, "queue": s.Queue,
		"long_running": s.LongRunning, "requires_approval": s.RequiresApproval, "return_direct": s.ReturnDirect, "digest": s.digest,
	}
	if s.Timeout > 0 {
		said["timeout_s"] = s.Timeout.Seconds()
	}
	if s.Patience > 0 {
		said["patience_s"] = s.Patience.Seconds()
	}
	if s.Version > 0 {
		said["version"] = s.Version
	}
	if len(s.Tags) > 0 {
		said["tags"] = s.Tags
	}
	if s.Rate != nil || s.Concurrency != nil {
		said["limits"] = map[string]any{"rate": s.Rate, "concurrency": s.Concurrency}
	}
	return said
}

// badArguments ends a call as bad_arguments: the model wrote something that the tool does not take.
type badArguments struct{ text string }

func (b badArguments) Error() string { return b.text }

// check returns badArguments with all that is wrong, in words for the model.
func (s *Served) check(arguments string) error {
	var object map[string]any
	if err := decode([]byte(arguments), &object); err != nil || object == nil {
		return badArguments{fmt.Sprintf("The arguments of %s are no JSON object: %v", s.Name, err)}
	}
	if hasEndlessNumber(object) {
		return badArguments{fmt.Sprintf("The arguments of %s do not fit: a number of more than %d digits", s.Name, maxDigits)}
	}
	result, err := s.schema.Validate(gojsonschema.NewStringLoader(arguments))
	if err != nil {
		return badArguments{fmt.Sprintf("The arguments of %s cannot be read: %v", s.Name, err)}
	}
	wrong := make([]string, 0, len(result.Errors()))
	for _, each := range result.Errors() {
		wrong = append(wrong, each.String())
	}
	if len(wrong) > 0 {
		return badArguments{fmt.Sprintf("The arguments of %s do not fit: %s", s.Name, strings.Join(wrong, "; "))}
	}
	return nil
}

// hasEndlessNumber says whether a number has thousands of digits, or an exponent that means as many: to read it takes long.
func hasEndlessNumber(value any) bool {
	switch value := value.(type) {
	case json.Number:
		digits, exponent, _ := strings.Cut(strings.ToLower(value.String()), "e")
		orElse(&exponent, "0")
		power, err := strconv.Atoi(exponent)
		return err != nil || len(digits) > maxDigits || power > maxDigits || power < -maxDigits
	case map[string]any:
		for _, each := range value {
			if hasEndlessNumber(each) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasEndlessNumber)
	}
	return false
}

// decode reads one JSON value and nothing behind it, with the digits of its numbers as they are.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("more than one JSON value")
	}
	return nil
}
