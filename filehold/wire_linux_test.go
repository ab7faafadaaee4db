package filehold_test

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// packet is what travels between a stub and the process that has its driver.
type packet struct {
	Space uint64 // whose driver
	Call  uint64 // what it belongs to; 0: nothing
	Over  bool   // the call's context has ended already
	Body  any
	Last  bool // the call has returned
	Err   *failure
}

// What packets carry to the process, besides the requests of package driver.
type (
	openSpace  struct{ Dir string }
	cancelCall struct{ Call uint64 }
	useHandle  struct {
		Handle uint64
		Change *driver.Change // nil: release
		Empty  bool           // it proclaims nothing at all, and a pointer to that does not travel
	}
	resize struct {
		Name  string
		Limit int64
	}
	remove struct {
		Kind driver.ResourceKind
		Name string
	}
	openSession struct{ Spec driver.Spec }
	keepSession struct {
		Session *driver.Session
		TTL     time.Duration
	}
	endSession struct{ Session *driver.Session }
	ping       struct{ Space uint64 }
	closing    struct{ Space uint64 }
)

// And what they carry back, besides its replies.
type (
	nothing    struct{ Done bool }
	grantReply struct {
		Grant  driver.Grant
		Handle uint64
	}
	sessionReply struct{ Session *driver.Session }
	queuedAt     struct{ Position int }
	sessionEnded struct {
		Session *driver.Session
		Why     *failure
	}
	faultTold struct {
		Op, Name string
		Why      *failure
	}
)

func init() {
	for _, body := range []any{
		openSpace{}, cancelCall{}, useHandle{}, resize{}, remove{}, openSession{}, keepSession{}, endSession{}, ping{}, closing{},
		nothing{}, grantReply{}, sessionReply{}, queuedAt{}, sessionEnded{}, faultTold{},
		driver.Info{}, driver.Request{}, driver.InspectRequest{}, driver.InspectReply{}, driver.SessionInfoRequest{}, driver.ForceRequest{}, driver.ForceReply{}, driver.SessionInfo{},
		driver.CountRequest{}, driver.CountReply{}, driver.ReserveRequest{}, driver.ReserveReply{}, driver.CountDownRequest{}, driver.CountDownReply{}, driver.LimitRequest{}, driver.LimitReply{},
		driver.TxnRequest{}, driver.TxnReply{}, driver.SweepRequest{}, driver.SweepReply{}, driver.WatchRequest{}, driver.Event{},
	} {
		gob.Register(body)
	}
}

// wire sends and receives packets, in order.
type wire struct {
	mu  sync.Mutex
	enc *gob.Encoder
	dec *gob.Decoder
}

func newWire(r io.Reader, w io.Writer) *wire {
	return &wire{enc: gob.NewEncoder(w), dec: gob.NewDecoder(r)}
}

func (w *wire) send(p *packet) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enc.Encode(p)
}

func (w *wire) receive() (*packet, error) {
	p := new(packet)
	return p, w.dec.Decode(p)
}

// failure is an error on its way: its text, and what errors.Is finds in it.
type failure struct {
	Known *driver.Error // without Kind and Err
	Kind  string
	Cause *failure
	Text  string
	Is    []string
}

// sentinels are the errors that are the same in every process.
var sentinels = []error{
	driver.ErrHeld, driver.ErrLost, driver.ErrReleased, driver.ErrConflict, driver.ErrStale, driver.ErrCompacted, driver.ErrExhausted,
	driver.ErrUnavailable, driver.ErrClosed, fs.ErrInvalid, fs.ErrPermission, fs.ErrNotExist, fs.ErrExist, errors.ErrUnsupported,
	context.Canceled, context.DeadlineExceeded,
}

func sentinel(text string) error {
	i := slices.IndexFunc(sentinels, func(e error) bool { return e.Error() == text })
	if i < 0 {
		return nil
	}
	return sentinels[i]
}

func packed(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	if e, ok := err.(*driver.Error); ok {
		bare := *e
		bare.Kind, bare.Err = nil, nil
		f.Known, f.Cause = &bare, packed(e.Err)
		if e.Kind != nil {
			f.Kind = e.Kind.Error()
		}
		return f
	}
	for _, s := range sentinels {
		if errors.Is(err, s) {
			f.Is = append(f.Is, s.Error())
		}
	}
	return f
}

func (f *failure) unpacked() error {
	switch {
	case f == nil:
		return nil
	case f.Known != nil:
		e := *f.Known
		e.Kind, e.Err = sentinel(f.Kind), f.Cause.unpacked()
		return &e
	case slices.Contains(f.Is, f.Text):
		return sentinel(f.Text)
	}
	return distant{f}
}

// distant is an error of another process that is no more than its text here.
type distant struct{ f *failure }

func (d distant) Error() string { return d.f.Text }

func (d distant) Is(target error) bool {
	return slices.Contains(d.f.Is, target.Error()) && sentinel(target.Error()) == target
}
