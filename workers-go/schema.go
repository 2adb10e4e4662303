package toolfleet

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

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
