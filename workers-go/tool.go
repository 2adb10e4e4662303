package toolfleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/xeipuuv/gojsonschema"
)

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
	// Schema is the JSON Schema of the arguments. Left out, Add derives it from the type of the function's argument.
	Schema json.RawMessage
}

// served is a tool with what its calls need.
type served struct {
	Tool
	schema *gojsonschema.Schema
	digest string
	call   func(ctx *Context, arguments []byte) (any, error)
}

// toolName is what every provider of models takes.
var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Add gives a worker a tool. Arguments are validated against the schema and then read into A: a struct whose fields have
// tags `json:"name"` and `doc:"what it is for"`, or json.RawMessage for the JSON as it came. A field with `,omitempty` or
// of a pointer type may be left out. Whole numbers keep all their digits: an int64 refuses what it cannot hold, and
// where the type is any they come as json.Number. A string that the function returns is what the model reads; nil reads
// "Done", anything else its JSON.
func Add[A any](w *Worker, tool Tool, function func(ctx *Context, arguments A) (any, error)) error {
	if !toolName.MatchString(tool.Name) {
		return fmt.Errorf("tool %q: a name is a letter or _, then up to 63 of letters, digits, _ and -", tool.Name)
	}
	if _, is := w.tools[tool.Name]; is {
		return fmt.Errorf("tool %s was added twice", tool.Name)
	}
	if tool.Schema == nil {
		derived, err := schemaOf(reflect.TypeFor[A]())
		if err != nil {
			return fmt.Errorf("tool %s: %w", tool.Name, err)
		}
		tool.Schema, _ = json.Marshal(derived)
	}
	schema, err := gojsonschema.NewSchemaLoader().Compile(gojsonschema.NewBytesLoader(tool.Schema))
	if err != nil {
		return fmt.Errorf("tool %s: its schema is no JSON Schema: %w", tool.Name, err)
	}
	if tool.Effect == "" {
		tool.Effect = Once
	}
	if tool.Queue == "" {
		tool.Queue = "io"
	}
	meaning, _ := json.Marshal([]any{tool.Name, tool.Schema, tool.Effect, tool.Queue, tool.Timeout})
	digest := sha256.Sum256(meaning)
	w.tools[tool.Name] = &served{tool, schema, hex.EncodeToString(digest[:])[:12], func(ctx *Context, arguments []byte) (any, error) {
		var read A
		if raw, is := any(&read).(*json.RawMessage); is {
			*raw = arguments
		} else if err := decode(arguments, &read); err != nil {
			return nil, badArguments{err.Error()}
		}
		return function(ctx, read)
	}}
	return nil
}

// badArguments ends a call as bad_arguments: the model wrote something that the tool does not take.
type badArguments struct{ text string }

func (b badArguments) Error() string { return b.text }

// check returns badArguments with all that is wrong, in words for the model.
func (s *served) check(arguments string) error {
	var object map[string]any
	if err := decode([]byte(arguments), &object); err != nil || object == nil {
		return badArguments{fmt.Sprintf("The arguments of %s are no JSON object: %v", s.Name, err)}
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

// schemaOf returns the JSON Schema of a Go type, as encoding/json reads it.
func schemaOf(t reflect.Type) (map[string]any, error) {
	if t == reflect.TypeFor[json.RawMessage]() {
		return map[string]any{}, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Interface:
		return map[string]any{}, nil
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}, nil
	case reflect.Slice, reflect.Array:
		items, err := schemaOf(t.Elem())
		return map[string]any{"type": "array", "items": items}, err
	case reflect.Map:
		values, err := schemaOf(t.Elem())
		return map[string]any{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return schemaOfStruct(t)
	}
	return nil, fmt.Errorf("no JSON Schema for %s: give the tool a Schema", t)
}

func schemaOfStruct(t reflect.Type) (map[string]any, error) {
	properties, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		property, err := schemaOf(field.Type)
		if err != nil {
			return nil, err
		}
		if doc := field.Tag.Get("doc"); doc != "" {
			property["description"] = doc
		}
		properties[name] = property
		if field.Type.Kind() != reflect.Pointer && !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
	}
	return map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	}, nil
}
