package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
)

func session(t *testing.T, s *holdfast.Space, opts ...holdfast.SessionOption) *holdfast.Session {
	t.Helper()
	ses, err := s.Session(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ses
}

func TestSession_KeptByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		ses := session(t, s, holdfast.TTL(10*time.Second), holdfast.ManualRenew())
		h := acquire(t, s.Mutex("a", holdfast.Under(ses)))
		if _, err := s.KV().Put(t.Context(), "k", nil, holdfast.Under(ses)); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(9 * time.Second)
			if err := ses.Keep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if h.Err() != nil || ses.Err() != nil {
			t.Fatalf("the hold: %v, the session: %v", h.Err(), ses.Err())
		}
		info, err := ses.Info(t.Context())
		if err != nil || !slices.Equal(info.Names, []string{"a"}) {
			t.Errorf("info %+v, %v", info, err)
		}
		if keys, err := ses.Keys(t.Context()); err != nil || !slices.Equal(keys, []string{"k"}) {
			t.Errorf("keys %q, %v", keys, err)
		}
		if ttl, err := ses.TimeToLive(t.Context()); err != nil || ttl != 10*time.Second {
			t.Errorf("time to live %s, %v", ttl, err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		<-ses.Done()
		wantErr(t, ses.Err(), holdfast.ErrLost)
		wantErr(t, h.Err(), holdfast.ErrLost)
		wantErr(t, ses.Keep(t.Context()), holdfast.ErrLost)
		wantErr(t, ses.Revoke(), holdfast.ErrLost)
		_, err = s.Mutex("b", holdfast.Under(ses)).Acquire(t.Context())
		wantErr(t, err, holdfast.ErrLost)
		if text := fmt.Sprintf(`holdfast: acquire "b": lost: session %s is over: not renewed in time; open another with Space.Session`, ses.ID()); err.Error() != text || !holdfast.NotDone(err) {
			t.Errorf("an Acquire under an ended session: %v, want %s", err, text)
		}
		_, err = s.KV().Put(t.Context(), "k2", nil, holdfast.Under(ses))
		wantErr(t, err, holdfast.ErrLost)
		if toy.holders("a") != 0 || len(toy.keys) != 0 {
			t.Error("something outlived its session")
		}
	})
}

func TestSession_RenewsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		ses := session(t, s, holdfast.TTL(time.Second))
		time.Sleep(time.Hour)
		if err := ses.Err(); err != nil {
			t.Error(err)
		}
	})
}

// Revoke tells the holders here before the backend lets anybody else in.
func TestSession_Revoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		ses := session(t, s)
		h := acquire(t, s.With(holdfast.Under(ses)).Mutex("a"))
		other := acquire(t, s.Mutex("other"))
		ctx := h.Bind(t.Context())
		if err := acquire(t, s.Mutex("b", holdfast.Under(ses))).Release(); err != nil {
			t.Fatal(err)
		}
		rw := s.RWMutex("rw", holdfast.Under(ses))
		changed := taken(t)(rw.Upgrade(t.Context(), taken(t)(rw.Reader().Acquire(t.Context()))))
		toy.onEnd = func() {
			wantErr(t, changed.Err(), holdfast.ErrLost)
			wantErr(t, context.Cause(ctx), holdfast.ErrLost)
			wantErr(t, h.Err(), holdfast.ErrLost)
		}
		if err := ses.Revoke(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, h.Err(), holdfast.ErrLost)
		wantErr(t, context.Cause(ctx), holdfast.ErrLost)
		wantErr(t, ses.Err(), holdfast.ErrReleased)
		if other.Err() != nil || toy.holders("a") != 0 {
			t.Errorf("the other hold: %v; %d holders", other.Err(), toy.holders("a"))
		}
		if err := ses.Revoke(); err != nil || toy.called("end session") != 1 {
			t.Errorf("second Revoke: %v", err)
		}
		var none *holdfast.Session
		if err := none.Revoke(); err != nil {
			t.Error(err)
		}
		if got, want := ses.Err().Error(), `holdfast: session "`+ses.ID().String()+`": released`; got != want {
			t.Errorf("error is %q, want %q", got, want)
		}
	})
}

func TestSession_Mistakes(t *testing.T) {
	s, _ := open(t)
	elsewhere, _ := open(t)
	ses := session(t, elsewhere)
	_, err := s.Mutex("a", holdfast.Under(ses)).Acquire(t.Context())
	wantInvalid(t, err, "the session is of another Space")
	_, err = s.KV().Put(t.Context(), "a", nil, holdfast.Under(ses))
	wantInvalid(t, err, "the session is of another Space")
	_, err = elsewhere.Mutex("a", holdfast.Under(ses), holdfast.ManualRenew()).Acquire(t.Context())
	wantInvalid(t, err, "use Session.Keep")
	_, err = s.Mutex("a", holdfast.Under(nil)).Acquire(t.Context())
	wantInvalid(t, err, "the session is nil")
	_, err = s.KV().Put(t.Context(), "a", nil, holdfast.Under(nil))
	wantInvalid(t, err, "the session is nil")
	_, err = s.Session(t.Context(), holdfast.TTL(5))
	wantInvalid(t, err, "5*time.Second")
	_, err = s.With(holdfast.TTL(5)).Session(t.Context())
	wantInvalid(t, err, "5*time.Second")
}

// Under carries the session's own settings, whatever the Space says.
func TestSession_Spec(t *testing.T) {
	s, toy := open(t, holdfast.TTL(time.Minute))
	ses := session(t, s, holdfast.TTL(10*time.Second), holdfast.Owner("me"))
	acquire(t, s.Mutex("a", holdfast.Under(ses)))
	if r := toy.lastRequest(); r.Session == nil || r.Session.ID != ses.ID() || r.Spec.TTL != 10*time.Second || r.Spec.Owner != "me" {
		t.Errorf("request %+v", r)
	}
}
