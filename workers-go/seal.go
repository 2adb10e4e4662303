package toolfleet

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// What a record is for stands before its text when it is signed, so that none passes for another.
const (
	purposeCall         = "toolfleet.call\x00"
	purposeResult       = "toolfleet.result\x00"
	purposeProgress     = "toolfleet.progress\x00"
	purposeCancel       = "toolfleet.cancel\x00"
	purposeCheckpoint   = "toolfleet.checkpoint\x00"
	purposeJob          = "toolfleet.job\x00"
	purposeCallback     = "toolfleet.callback\x00"
	purposeGrant        = "toolfleet.artifact-grant\x00"
	purposeAnnouncement = "toolfleet.announcement\x00"
	purposeMember       = "toolfleet.member\x00"

	macChars = 2 * sha256.Size
	atDigits = 15
)

var errUnsigned = errors.New("unsigned or altered")

// Seal signs with its first secret and believes what any of them has signed (RFC 2104, HMAC-SHA256).
type Seal struct{ secrets [][]byte }

// NewSeal takes the secret as it is written, and the previous one while secrets are changed ("" for none).
func NewSeal(secret, previous string) *Seal {
	seal := &Seal{secrets: [][]byte{[]byte(secret)}}
	if previous != "" {
		seal.secrets = append(seal.secrets, []byte(previous))
	}
	return seal
}

// MAC is the code over just these bytes, in hex.
func (s *Seal) MAC(purpose string, text []byte) string { return macOf(s.secrets[0], purpose, text) }

// Holds says whether the fleet has signed these bytes for this purpose.
func (s *Seal) Holds(purpose string, text []byte, mac string) bool {
	for _, secret := range s.secrets {
		if hmac.Equal([]byte(macOf(secret, purpose, text)), []byte(mac)) {
			return true
		}
	}
	return false
}

// Close returns the code, then the text: how results, progress and checkpoints stand in Redis.
func (s *Seal) Close(purpose, callID string, text []byte) []byte {
	return append([]byte(s.MAC(purpose+callID+"\x00", text)), text...)
}

// Open returns the text in what Close made, or errUnsigned.
func (s *Seal) Open(purpose, callID string, sealed []byte) ([]byte, error) {
	if len(sealed) < macChars || !s.Holds(purpose+callID+"\x00", sealed[macChars:], string(sealed[:macChars])) {
		return nil, errUnsigned
	}
	return sealed[macChars:], nil
}

// closeAnnouncement seals what a worker says of itself for its name and this moment of the server's clock.
func (s *Seal) closeAnnouncement(worker string, atMS int64, text []byte) []byte {
	return s.Close(purposeAnnouncement, worker, append([]byte(fmt.Sprintf("%0*d", atDigits, atMS)), text...))
}

// proofs show others which secrets a worker has, bound to its name.
func (s *Seal) proofs(worker string) []string {
	shown := make([]string, 0, len(s.secrets))
	for _, secret := range s.secrets {
		shown = append(shown, macOf(secret, purposeMember, []byte(worker)))
	}
	return shown
}

func macOf(secret []byte, purpose string, text []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(purpose))
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}
