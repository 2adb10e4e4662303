package toolfleet

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
)

const vectors = "../wire/v1/vectors/"

// read returns what a file says of all its vectors, and the vectors.
func read[V any](t *testing.T, name string) (common struct {
	Secret     string  `json:"secret"`
	Previous   string  `json:"previous_secret"`
	Most       int     `json:"max_message_bytes"`
	Deliveries int     `json:"max_deliveries"`
	Now        float64 `json:"now_unix_s"`
}, all []V) {
	text, err := os.ReadFile(vectors + name)
	if err == nil {
		err = json.Unmarshal(text, &common)
	}
	var rest struct {
		Vectors []V `json:"vectors"`
	}
	if err == nil {
		err = json.Unmarshal(text, &rest)
	}
	if err != nil || len(rest.Vectors) == 0 {
		t.Fatal(name, err)
	}
	return common, rest.Vectors
}

func TestTheBytesThatAreSigned(t *testing.T) {
	_, all := read[struct{ Name, Secret, Purpose, Text, Mac string }](t, "signatures.json")
	for _, each := range all {
		if mac := NewSeal(each.Secret, "").MAC(each.Purpose, []byte(each.Text)); mac != each.Mac {
			t.Errorf("%s: %s", each.Name, mac)
		}
	}
}

func TestCallsAreBelievedOrRefused(t *testing.T) {
	common, all := read[struct {
		Name, Text, Mac string
		Answer          struct {
			Accept bool
			Reason string
		}
	}](t, "calls.json")
	reasons := map[error]string{errUnsigned: "signature", errVersion: "version", errShape: "shape", errTooMuch: "size", nil: ""}
	for _, each := range all {
		_, err := openCall(NewSeal(common.Secret, common.Previous), []byte(each.Text), each.Mac, common.Most)
		if reason := reasons[err]; reason != each.Answer.Reason || (err == nil) != each.Answer.Accept {
			t.Errorf("%s: %v", each.Name, err)
		}
	}
}

func TestRecordsAreBelievedOrRefused(t *testing.T) {
	common, all := read[struct {
		Name, Kind, Call_id, Sealed string
		Answer                      struct{ Reason string }
	}](t, "records.json")
	purposes := map[string]string{"result": purposeResult, "progress": purposeProgress, "checkpoint": purposeCheckpoint,
		"cancel": purposeCancel}
	for _, each := range all {
		purpose, is := purposes[each.Kind]
		if !is { // others' announcements are not read here
			continue
		}
		_, err := NewSeal(common.Secret, common.Previous).Open(purpose, each.Call_id, []byte(each.Sealed))
		if errors.Is(err, errUnsigned) != (each.Answer.Reason == "signature") {
			t.Errorf("%s: %v", each.Name, err)
		}
	}
}

func TestMessagesMeetTheFateThatTheContractSays(t *testing.T) {
	common, all := read[struct {
		Name, Effect, Digest, Claim_holder, Answer string
		Deliveries                                 int
		Claimed, Cancelled, Serves                 bool
		Fields                                     map[string]string
	}](t, "deliveries.json")
	for _, each := range all {
		tools := map[string]Served{}
		if each.Serves {
			tools["echo"] = Served{Tool: Tool{Name: "echo", Effect: Effect(each.Effect)}, digest: each.Digest}
		}
		d := &delivery{deliveries: each.Deliveries, claimed: each.Claimed, cancelled: each.Cancelled, fields: map[string][]byte{}}
		for name, value := range each.Fields {
			d.fields[name] = []byte(value)
		}
		verdict, err := d.judge(NewSeal(common.Secret, common.Previous), tools, common.Now,
			Settings{MaxMessageBytes: common.Most, MaxDeliveries: common.Deliveries})
		if each.Claim_holder != "" && verdict == toClaim {
			verdict = "drop" // the server has the last word there
		}
		if verdict != each.Answer {
			t.Errorf("%s: %s, not %s (%v)", each.Name, verdict, each.Answer, err)
		}
	}
}
