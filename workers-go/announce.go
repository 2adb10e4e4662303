package toolfleet

import (
	"encoding/json"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/gomodule/redigo/redis"
)

const (
	announcedS  = 30
	mostWorkers = 10000
)

// announce says which tools are served here, and refuses to where another tool is served under one of their names.
func (w *Worker) announce() error {
	names := make([]string, 0, len(w.tools))
	for name := range w.tools {
		names = append(names, name)
	}
	sort.Strings(names)
	sources, specs := map[string]string{}, make([]map[string]any, 0, len(names))
	keys := []string{w.Namespace + ":workers", w.key("worker", w.name)}
	var variants []any
	for _, name := range names {
		tool := w.tools[name]
		spec := tool.spec()
		sources[name] = w.Source + ":" + name
		specs, keys = append(specs, spec), append(keys, w.key("spec", name))
		variants = append(variants, digestOf(string(encoded(spec)))[:16]+" "+sources[name])
	}
	lanes := map[string]string{}
	for _, queue := range w.queues() {
		lanes[queue] = w.laneOf(queue)
	}
	text := encoded(map[string]any{
		"v": 1, "worker": w.name, "lanes": lanes, "pid": os.Getpid(), "pool": "go", "concurrency": w.Concurrency, "queues": w.queues(),
		"started_unix_s": unixS(w.started), "tools": specs, "proofs": w.seal.proofs(w.name), "sources": sources, "reads": []int{1},
	})
	return w.once(func(conn redis.Conn) error {
		at, err := redis.Int64s(conn.Do("TIME"))
		if err != nil {
			return err
		}
		w.announced = max(at[0]*1000+at[1]/1000, w.announced+1)
		sealed := w.seal.closeAnnouncement(w.name, w.announced, text)
		reply, err := redis.Values(w.script(conn, "announce", keys, append([]any{announcedS, w.name, sealed}, variants...)...))
		if err != nil {
			return err
		}
		if position, _ := redis.Int(reply[0], nil); position >= 0 {
			variant, _ := redis.String(reply[1], nil)
			_, other, _ := strings.Cut(variant, " ")
			return misconfigured("live workers serve another tool as %s, from %s: stop them first, or rename the tool", names[position], other)
		}
		return nil
	})
}

// announced is what is of use here of what a worker says of itself.
type announced struct {
	Proofs []string          `json:"proofs"`
	Lanes  map[string]string `json:"lanes"`
	Reads  []int             `json:"reads"`
	Tools  []struct {
		Name   string `json:"name"`
		Queue  string `json:"queue"`
		Digest string `json:"digest"`
		Version int   `json:"version"`
	} `json:"tools"`
}

// liveWorkers returns those whose announcement is sealed with our secret, and whether any shows that it has another one.
func (w *Worker) liveWorkers(conn redis.Conn) (ours []announced, hasStrangers bool, err error) {
	now, err := redis.Int64s(conn.Do("TIME"))
	if err != nil {
		return nil, false, err
	}
	names, err := redis.Strings(conn.Do("ZRANGEBYSCORE", w.Namespace+":workers", now[0]-announcedS, "+inf", "LIMIT", 0, mostWorkers))
	if err != nil || len(names) == 0 {
		return nil, false, err
	}
	keys := make([]any, 0, len(names))
	for _, name := range names {
		keys = append(keys, w.key("worker", name))
	}
	texts, err := redis.ByteSlices(conn.Do("MGET", keys...))
	for i, sealed := range texts {
		if len(sealed) < macChars+atDigits { // it has gone
			continue
		}
		var said announced
		_, unsigned := w.seal.Open(purposeAnnouncement, names[i], sealed)
		isRead := json.Unmarshal(sealed[macChars+atDigits:], &said) == nil
		if unsigned == nil && isRead {
			ours = append(ours, said)
		} else if len(said.Proofs) > 0 && !w.sharesSecret(names[i], said.Proofs) {
			hasStrangers = true
		}
	}
	return ours, hasStrangers, err
}

// mustBeWelcome refuses to take the calls of a fleet whose secret is another one: none of them could be believed.
func (w *Worker) mustBeWelcome() error {
	return w.once(func(conn redis.Conn) error {
		ours, hasStrangers, err := w.liveWorkers(conn)
		if err != nil || len(ours) > 0 {
			return err
		}
		orchestrators, err := redis.Strings(conn.Do("ZRANGE", w.Namespace+":orchestrators", 0, -1))
		if err != nil {
			return err
		}
		for _, name := range orchestrators {
			shown, err := redis.String(conn.Do("GET", w.key("orchestrator-proofs", name)))
			if err != nil {
				continue // it shows none
			}
			var proofs []string
			if json.Unmarshal([]byte(shown), &proofs) == nil && w.sharesSecret(name, proofs) {
				return nil
			}
			hasStrangers = true
		}
		if hasStrangers {
			return misconfigured("all others of this fleet use another TOOLFLEET_SECRET than this process: set the same one everywhere")
		}
		return nil
	})
}

// sharesSecret says whether what a member of the fleet shows proves that it has one of our secrets.
func (w *Worker) sharesSecret(member string, proofs []string) bool {
	return slices.ContainsFunc(w.seal.proofs(member), func(own string) bool { return slices.Contains(proofs, own) })
}
