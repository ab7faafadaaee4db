package natsconn_test

import (
	"net/url"
	"testing"

	"github.com/holdfast-io/holdfast/internal/natsconn"
)

// What proves a user is not shown: a user without a password is a token.
func TestRedacted(t *testing.T) {
	for text, want := range map[string]string{
		"nats://token@h:4222/b":     "nats://h:4222/b",
		"nats://user:word@h:4222/b": "nats://user:xxxxx@h:4222/b",
		"nats://h:4222/b?tls=1":     "nats://h:4222/b",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := natsconn.Redacted(u); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}
