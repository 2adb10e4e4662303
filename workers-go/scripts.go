package toolfleet

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	contract "github.com/toolfleet/toolfleet/wire/v1"
)

// part is one step of what a script is made of, see wire/v1/scripts.json: a file's name, or one of the others.
type part struct {
	file      string
	Constants []string `json:"constants"`
	Library   string   `json:"library"`
	Function  string   `json:"function"`
	Of        []part   `json:"of"`
	Gives     []string `json:"gives"`
}

func (p *part) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &p.file)
	}
	type others part
	return json.Unmarshal(text, (*others)(p))
}

type manifest struct {
	Constants map[string]string `json:"constants"`
	Libraries map[string][]part `json:"libraries"`
	Scripts   map[string]struct {
		MadeOf []part `json:"made_of"`
	} `json:"scripts"`
}

// loadScripts returns the contract's scripts by their names.
func loadScripts() (map[string]*redis.Script, error) {
	text, err := contract.Files.ReadFile("scripts.json")
	if err != nil {
		return nil, err
	}
	var said manifest
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("scripts.json: %w", err)
	}
	scripts := map[string]*redis.Script{}
	for name, script := range said.Scripts {
		lua, err := said.join(script.MadeOf)
		if err != nil {
			return nil, fmt.Errorf("script %s: %w", name, err)
		}
		scripts[name] = redis.NewScript(-1, lua)
	}
	return scripts, nil
}

func (m *manifest) join(parts []part) (string, error) {
	texts := make([]string, 0, len(parts))
	for _, each := range parts {
		text, err := m.text(each)
		if err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), nil
}

func (m *manifest) text(p part) (string, error) {
	switch {
	case p.file != "":
		lua, err := contract.Files.ReadFile("scripts/" + p.file)
		return string(lua), err
	case p.Constants != nil:
		lines := make([]string, 0, len(p.Constants))
		for _, name := range p.Constants {
			lines = append(lines, fmt.Sprintf("local %s = '%s'", name, m.Constants[name]))
		}
		return strings.Join(lines, "\n"), nil
	case p.Library != "":
		return m.join(m.Libraries[p.Library])
	}
	// Made only where it is called: most runs of a script do not need all of it.
	lua, err := m.join(p.Of)
	given := ""
	if len(p.Gives) > 0 {
		given = "return " + strings.Join(p.Gives, ", ") + "\n"
	}
	return fmt.Sprintf("local function %s()\n%s\n%send", p.Function, lua, given), err
}

// script runs one; its arguments are the number of KEYS, KEYS and ARGV.
func (w *Worker) script(conn redis.Conn, name string, keys []string, args ...any) (any, error) {
	all := make([]any, 0, 1+len(keys)+len(args))
	all = append(all, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return w.scripts[name].Do(conn, append(all, args...)...)
}
