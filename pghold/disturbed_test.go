package pghold_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestForeignNotifications: what others say on the channel of events, as every user of the database may, ends no
// watch.
func TestForeignNotifications(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	s, other := open(t, url), connect(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	foreign := []string{"", "garbage", "{}", "null", "[1]", `{"r":"x"}`, "@", "@x", "@99"}
	for ev, err := range s.Watch(ctx, "", 0) {
		switch {
		case err != nil:
			t.Fatalf("the watch ends: %v", err)
		case ev.Verb == driver.VerbReady:
			for _, text := range foreign {
				must(other.Exec(ctx, "select pg_notify('holdfast_event', $1)", text))(t)
			}
			must(s.KV().Put(ctx, "key", []byte("value")))(t)
		case ev.Verb == driver.VerbResync: // the put may be among what is missing
			must(s.KV().Put(ctx, "key", []byte("value")))(t)
		case ev.KV == nil || ev.KV.Key != "key":
			t.Errorf("an event that did not happen: %+v", ev)
		default:
			return
		}
	}
	t.Fatal("the put was not told")
}
