package toolfleet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const minSecretBytes = 16

// Misconfigured says why a worker cannot serve as it is set up: starting it again will not help.
type Misconfigured struct{ text string }

func (m Misconfigured) Error() string { return m.text }

func misconfigured(format string, values ...any) error {
	return Misconfigured{fmt.Sprintf(format, values...)}
}

// Settings say which fleet a worker belongs to, and how much it takes. What is left out is as it is everywhere.
type Settings struct {
	RedisURL, Namespace, Secret, PreviousSecret string
	// Name is what the worker announces itself by, before @ and the host. Nobody else's; made up if left out.
	Name string
	// Source is where the tools are declared: another worker may serve a tool of the same name only from the same place. The
	// program's module if left out.
	Source string
	// Concurrency is how many calls run at once; 100 if left out.
	Concurrency int
	// MaxDeliveries is how often a call may lose its worker.
	MaxDeliveries int
	// A larger message is buried, a larger result is kept as an artifact, and a larger artifact cut.
	MaxMessageBytes, MaxResultBytes, MaxArtifactBytes int
	KeepArtifact                                      time.Duration
	// Lease is the fleet's TOOLFLEET_LEASE_S: when others have what a lost worker held.
	Lease, Heartbeat time.Duration
	// Grace is how long calls may take to end when the worker is stopped.
	Grace time.Duration
	// PublicURL is where other systems reach the HTTP API, for Context.CallbackURL.
	PublicURL string
	Log       *slog.Logger

	wrong error
}

// SettingsFromEnvironment reads the TOOLFLEET_… variables that all workers read.
func SettingsFromEnvironment() Settings {
	var settings Settings
	text := func(name string) string { return os.Getenv("TOOLFLEET_" + name) }
	number := func(name string) float64 {
		value, err := strconv.ParseFloat(text(name), 64)
		if text(name) != "" && (err != nil || !(value >= 0 && value < 1e12)) {
			settings.wrong = misconfigured("TOOLFLEET_%s is no number", name)
		}
		return value
	}
	seconds := func(name string) time.Duration { return time.Duration(number(name) * float64(time.Second)) }
	settings.RedisURL, settings.Namespace = text("REDIS_URL"), text("NAMESPACE")
	settings.PublicURL = text("PUBLIC_URL")
	settings.Secret, settings.PreviousSecret = text("SECRET"), text("PREVIOUS_SECRET")
	settings.Lease, settings.Heartbeat, settings.Grace = seconds("LEASE_S"), seconds("HEARTBEAT_S"), seconds("SHUTDOWN_GRACE_S")
	settings.MaxDeliveries, settings.MaxMessageBytes = int(number("MAX_DELIVERIES")), int(number("MAX_MESSAGE_BYTES"))
	settings.MaxResultBytes, settings.MaxArtifactBytes = int(number("MAX_RESULT_BYTES")), int(number("MAX_ARTIFACT_BYTES"))
	settings.KeepArtifact = seconds("KEEP_ARTIFACT_S")
	return settings
}

// complete fills in what was left out, and refuses what cannot be meant.
func (s *Settings) complete() error {
	orElse(&s.RedisURL, "redis://127.0.0.1:6379/0")
	orElse(&s.Namespace, "toolfleet")
	orElse(&s.Concurrency, 100)
	orElse(&s.MaxDeliveries, 5)
	orElse(&s.MaxMessageBytes, 4<<20)
	orElse(&s.MaxResultBytes, 256<<10)
	orElse(&s.MaxArtifactBytes, 16<<20)
	orElse(&s.KeepArtifact, 7*24*time.Hour)
	orElse(&s.Lease, 30*time.Second)
	orElse(&s.Heartbeat, 5*time.Second)
	orElse(&s.Grace, 30*time.Second)
	orElse(&s.Log, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if s.Secret != "" && len(s.Secret) < minSecretBytes {
		return misconfigured("TOOLFLEET_SECRET must have at least %d bytes", minSecretBytes)
	}
	return s.wrong
}

func orElse[T comparable](value *T, otherwise T) {
	var none T
	if *value == none {
		*value = otherwise
	}
}

// dialer understands redis://, rediss:// and unix:// addresses as the rest of the fleet does.
func (s *Settings) dialer() (func() (redis.Conn, error), error) {
	parsed, err := url.Parse(s.RedisURL)
	if err != nil {
		return nil, misconfigured("TOOLFLEET_REDIS_URL is no address") // it may have a password, which err would show
	}
	network, at, isLocal := "tcp", "", parsed.Scheme == "unix"
	switch parsed.Scheme {
	case "redis", "rediss":
		host, port := parsed.Hostname(), parsed.Port()
		orElse(&host, "localhost")
		orElse(&port, "6379")
		at = net.JoinHostPort(host, port)
		isLocal = host == "localhost" || net.ParseIP(host).IsLoopback()
	case "unix":
		network, at = "unix", parsed.Path
	default:
		return nil, misconfigured("TOOLFLEET_REDIS_URL begins with %q: redis://, rediss:// and unix:// are understood. "+
			"Of servers behind Sentinel, give an address that leads to the primary", parsed.Scheme+"://")
	}
	if s.Secret == "" && !isLocal {
		return nil, misconfigured("TOOLFLEET_SECRET is required when Redis is not on this machine: use the fleet's own")
	}
	options, err := optionsOf(parsed)
	return func() (redis.Conn, error) { return redis.Dial(network, at, options...) }, err
}

func optionsOf(address *url.URL) ([]redis.DialOption, error) {
	password, _ := address.User.Password()
	options := []redis.DialOption{
		redis.DialConnectTimeout(5 * time.Second), redis.DialReadTimeout(10 * time.Second), redis.DialWriteTimeout(10 * time.Second),
		redis.DialUsername(address.User.Username()), redis.DialPassword(password),
	}
	said := address.Query()
	number := said.Get("db")
	if number == "" && address.Scheme != "unix" {
		number = strings.Trim(address.Path, "/")
	}
	orElse(&number, "0")
	db, err := strconv.Atoi(number)
	if err != nil || db < 0 {
		return nil, misconfigured("TOOLFLEET_REDIS_URL names no database: %q is no number", number)
	}
	options = append(options, redis.DialDatabase(db))
	if address.Scheme != "rediss" {
		return options, nil
	}
	trusted, err := tlsOf(said)
	return append(options, redis.DialUseTLS(true), redis.DialTLSConfig(trusted)), err
}

// tlsOf trusts what the machine trusts, or just the authority that ssl_ca_certs names.
func tlsOf(said url.Values) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for name := range said {
		if strings.HasPrefix(name, "ssl_") && name != "ssl_ca_certs" {
			return nil, misconfigured("TOOLFLEET_REDIS_URL: of the options for TLS, ssl_ca_certs is understood, and not %s", name)
		}
	}
	if file := said.Get("ssl_ca_certs"); file != "" {
		text, err := os.ReadFile(file)
		config.RootCAs = x509.NewCertPool()
		if err != nil || !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, misconfigured("TOOLFLEET_REDIS_URL: %s has no certificates (%v)", file, err)
		}
	}
	return config, nil
}

// isRefused says whether the server has refused us, so that asking again will not help.
func isRefused(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return false
	}
	for _, word := range []string{"NOPERM", "WRONGPASS", "NOAUTH", "ERR AUTH", "ERR DB index"} {
		if strings.HasPrefix(string(said), word) {
			return true
		}
	}
	return false
}
