package toolfleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"
)

const (
	settledAtOnce   = 200
	isAnothers      = 0
	counted         = 1
	hadResult       = 2
	pieceBytes      = 256 << 10
	maxPreviewBytes = 8192
	jobKeptS        = 86400 // beyond the call's deadline
)

type settlement struct {
	delivery *delivery
	sealed   []byte
	done     chan int
}

// settle ends a call with this result; it returns when Redis knows it.
func (w *Worker) settle(d *delivery, result map[string]any) {
	if content, is := result["content"].(string); is && len(content) > w.MaxResultBytes {
		w.fit(d.call, result, content)
	}
	result["attempt"] = map[string]any{
		"worker": w.name, "number": max(d.deliveries, 1),
		"began_unix_s": unixS(d.began), "ended_unix_s": max(unixS(time.Now()), unixS(d.began)),
	}
	each := settlement{d, w.seal.Close(purposeResult, d.call.CallID, encoded(result)), make(chan int, 1)}
	w.settling <- each
	outcome := <-each.done
	if outcome == hadResult {
		outcome = w.unlessForged(each)
	}
	if outcome == isAnothers {
		w.Log.Warn("late result dropped", "call_id", d.call.CallID)
	} else if d.hasCheckpoint.Load() || d.deliveries > 1 {
		w.insist(func(conn redis.Conn) error {
			_, err := conn.Do("DEL", w.key("checkpoint", d.call.CallID)) // nothing goes on from it
			return err
		})
	}
}

func unixS(moment time.Time) float64 { return float64(moment.UnixMicro()) / 1e6 }

// settleAll tells Redis of results, as many at once as there are.
func (w *Worker) settleAll(over <-chan struct{}) {
	for {
		var first settlement
		select {
		case <-over:
			return
		case first = <-w.settling:
		}
		some := []settlement{first}
		for len(some) < settledAtOnce && len(w.settling) > 0 {
			some = append(some, <-w.settling)
		}
		args := []any{w.key("job", "")}
		for _, each := range some {
			d := each.delivery
			args = append(args, d.stream, w.consumer, w.key("result", ""), w.key("replies", d.call.ReplyTo), 1, d.entry, d.call.CallID, each.sealed)
			args = append(args, d.places...)
		}
		outcomes := make([]int, len(some))
		w.insist(func(conn redis.Conn) (err error) { // twice counts once
			outcomes, err = redis.Ints(w.script(conn, "settle", nil, args...))
			return err
		})
		for i, each := range some {
			each.done <- outcomes[i]
		}
	}
}

// unlessForged puts our result in the place of one that nobody of the fleet has sealed.
func (w *Worker) unlessForged(each settlement) (outcome int) {
	outcome, call := hadResult, each.delivery.call
	w.insist(func(conn redis.Conn) error {
		found, err := redis.Bytes(conn.Do("GET", w.key("result", call.CallID)))
		if err != nil || w.believes(call.CallID, found) {
			return except(err, redis.ErrNil)
		}
		if _, err = conn.Do("HINCRBY", w.Namespace+":counters", "forged_results", 1); err == nil {
			outcome, err = redis.Int(w.script(conn, "replace_result", nil, w.key("result", ""), call.CallID, found, each.sealed,
				w.key("replies", call.ReplyTo)))
		}
		return err
	})
	return outcome
}

// believes says whether a stored result is one that the fleet has sealed, and the end of its call.
func (w *Worker) believes(callID string, sealed []byte) bool {
	text, unsigned := w.seal.Open(purposeResult, callID, sealed)
	return unsigned == nil && !strings.HasPrefix(string(text), `{"type":"submitted"`)
}

// fit keeps a long text as an artifact of the call's run and has the result show its ends; what is too long for that is cut.
func (w *Worker) fit(call Call, result map[string]any, content string) {
	if len(content) <= w.MaxArtifactBytes && w.keep(call, content) {
		digest := digestOf(content)
		result["artifact"], result["content"] = digest, preview(content, digest, w.MaxResultBytes)
		return
	}
	kept := upTo(content, w.MaxResultBytes)
	result["content"] = fmt.Sprintf("%s\n[cut: the result has %d bytes, the first %d are shown]", kept, len(content), len(kept))
}

func (w *Worker) keep(call Call, content string) bool {
	var pieces []string
	for at := 0; at < len(content); at += pieceBytes {
		pieces = append(pieces, digestOf(content[at:min(at+pieceBytes, len(content))]))
	}
	artifact := digestOf(content)
	grant := encoded(map[string]any{
		"v": 1, "tenant": call.Tenant, "media_type": "text/plain; charset=utf-8", "name": "", "size_bytes": len(content), "pieces": pieces,
	})
	keys := []string{
		w.key("artifact", call.Tenant+":"+artifact), w.key("artifact-grant", call.RunID+":"+artifact),
		w.key("artifact-runs", call.Tenant+":"+artifact), w.key("artifacts-of", call.RunID),
	}
	kept := 0
	err := w.once(func(conn redis.Conn) (err error) {
		kept, err = redis.Int(w.script(conn, "keep_artifact", keys, artifact, call.RunID, w.key("deleted", call.RunID),
			w.seal.Close(purposeGrant+call.RunID+"\x00", artifact, grant), int(w.KeepArtifact.Seconds()), content))
		return err
	})
	if err != nil {
		w.Log.Warn("artifact not kept", "call_id", call.CallID, "error", err)
	}
	return kept == 1
}

func digestOf(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

// preview is the beginning and the end of a text, and how the model reads on; in characters as every language counts them.
func preview(text, artifact string, most int) string {
	characters, lines := utf8.RuneCountInString(text), strings.Count(text, "\n")+1
	size := fmt.Sprintf("%d characters in %d lines", characters, lines)
	if lines == 1 {
		size = fmt.Sprintf("%d characters in 1 line", characters)
	}
	how := fmt.Sprintf(`[the whole result has %s; read on with read_result(artifact="%s", offset=…), or find something in it with search="…"]`, size, artifact)
	room := max(64, min(maxPreviewBytes, most)-len(how)-80)
	head, tail := upTo(text, room*3/4), text[max(len(text)-room/4, 0):]
	for tail != "" && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	left := characters - utf8.RuneCountInString(head) - utf8.RuneCountInString(tail)
	return fmt.Sprintf("%s\n[… %d characters left out …]\n%s\n%s", head, left, tail, how)
}

// upTo is the beginning of a longer text, of whole characters.
func upTo(text string, most int) string {
	if most >= len(text) {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// submit puts a job in another system in the place of a call: who ends it there tells the fleet over HTTP.
func (w *Worker) submit(d *delivery, job Submitted) {
	call, submittedS := d.call, unixS(time.Now())
	orElse(&job.AskAfter, 5*time.Second)
	record := map[string]any{
		"v": 1, "call": json.RawMessage(call.text), "external_id": job.ExternalID, "poll_after_s": job.AskAfter.Seconds(),
		"submitted_unix_s": submittedS, "attempt": max(d.deliveries, 1), "message": job.Message,
		"polled": false, "cancellable": false,
	}
	told := map[string]any{"type": "submitted", "poll_after_s": job.AskAfter.Seconds(), "message": job.Message} // the id is nobody's business
	asked := map[string]any{
		"stream": d.stream, "consumer": w.consumer, "entry": d.entry, "gates": string(d.fields["gates"]), "call": call.CallID,
		"tool": call.Tool, "reply_to": call.ReplyTo, "name": fmt.Sprintf("%d %.0f", max(d.deliveries, 1), math.Floor(submittedS*1000)),
		"is_scheduled": false, "first_wait_ms": 0, "deadline_ms": int64(call.DeadlineS * 1000),
		"ends_ms": int64((call.DeadlineS + jobKeptS) * 1000),
	}
	keys := []string{
		w.key("result", call.CallID), w.key("job", call.CallID), w.key("jobs", call.Tool), w.key("cancelled", call.CallID),
		w.key("replies", call.ReplyTo), w.key("job-ended", call.CallID),
	}
	w.insist(func(conn redis.Conn) error {
		_, err := w.script(conn, "submit_job", keys, encoded(asked), w.seal.Close(purposeJob, call.CallID, encoded(record)),
			w.seal.Close(purposeResult, call.CallID, encoded(told)))
		return err
	})
}

// postpone has a call tried again later, and shuts its limits for everybody meanwhile. This delivery does not count.
func (w *Worker) postpone(d *delivery, pause time.Duration) {
	at := w.placeOf(d.stream)
	home := homeOf(at.queue)
	w.insist(func(conn redis.Conn) error {
		_, err := w.script(conn, "postpone", []string{d.stream, w.key("scheduled", home)}, group, w.consumer, d.entry,
			w.stream(home, at.level), pause.Milliseconds(), w.key("claim", ""), d.call.CallID, d.call.Tenant, d.call.RunID,
			int64(d.call.DeadlineS*1000))
		return err
	})
}

// handBack gives a message to another worker, as if this one had never had it.
func (w *Worker) handBack(d *delivery) {
	w.insist(func(conn redis.Conn) error {
		_, err := w.script(conn, "park", []string{d.stream}, group, w.consumer, returnedTo, 1, d.entry)
		return err
	})
}

func (w *Worker) bury(d *delivery, reason string) {
	w.Log.Warn("buried a message", "reason", reason, "entry", d.entry)
	w.insist(func(conn redis.Conn) error {
		_, err := w.script(conn, "bury", []string{d.stream, w.Namespace + ":dead", w.Namespace + ":counters"},
			group, 10000, homeOf(w.placeOf(d.stream).queue), 65536, d.entry, reason)
		return err
	})
}
