package natslink

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/natsconn"
)

// Options are the settings of a link. The zero value has the defaults. They say how
// the stream is made; one that exists is used as it is.
type Options struct {
	// Stream is the name of the stream, of letters, digits, _ and -; empty:
	// HOLDFAST_EDGE.
	Stream string
	// Subject is what all subjects begin with, words of letters, digits, _ and -
	// with dots between; empty: holdfast.edge. Nodes that shall not meet use
	// different subjects and streams.
	Subject string
	// Existing: a stream that does not exist is an error instead of being made.
	Existing bool
	// Replicas is how many servers of a cluster keep the stream, 1 to 5; 0: 1.
	Replicas int
	// Retention is how long the last state of a node that is gone is kept, at
	// least a second; 0: a week. If all nodes are gone for longer, their counts are. Windows
	// are kept for twice their length only, if the server is of 2.11 or later and the stream was
	// made by this version or has allow_msg_ttl.
	Retention time.Duration
	// Memory keeps the stream in the servers' memory only.
	Memory bool
	// Trace gives the traceparent (W3C Trace Context) that the next message carries
	// as a header; nil, or what is not one: none. None of the functions here may block,
	// nor close the node or the link, which wait for them.
	Trace func() string
	// OnTrace is told the traceparent of each message that came with one.
	OnTrace func(traceparent string)
	// OnError is told what goes wrong: a connection that was cut, a right that is
	// missing, a stream that cannot be used or does not keep states; each cause once, until nothing is wrong any more.
	OnError func(error)
}

const (
	maxReplicas = 5
	week        = 7 * 24 * time.Hour
)

var (
	streamName  = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	subjectName = regexp.MustCompile(`^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*$`)
)

// settled fills the defaults in, or says what is wrong.
func (o *Options) settled() (Options, error) {
	var s Options
	if o != nil {
		s = *o
	}
	s.Stream, s.Subject = cmp.Or(s.Stream, "HOLDFAST_EDGE"), cmp.Or(s.Subject, "holdfast.edge")
	s.Replicas, s.Retention = cmp.Or(s.Replicas, 1), cmp.Or(s.Retention, week)
	switch {
	case !streamName.MatchString(s.Stream) || len(s.Stream) > 255:
		return s, fmt.Errorf("the stream %q has other characters than letters, digits, _ and -, or more than 255", s.Stream)
	case !subjectName.MatchString(s.Subject) || len(s.Subject) > 255:
		return s, fmt.Errorf("the subject %q is not words of letters, digits, _ and - with dots between, or longer than 255", s.Subject)
	case s.Replicas < 1 || s.Replicas > maxReplicas:
		return s, fmt.Errorf("there are 1 to %d replicas, not %d", maxReplicas, s.Replicas)
	case s.Retention < time.Second:
		return s, fmt.Errorf("a retention of %s is too short; it needs a second", s.Retention)
	}
	return s, nil
}

// fromURL reads options and addresses; what the URL says stands above o.
func fromURL(u *url.URL, o *Options) (opts Options, addrs []string, err error) {
	if o != nil {
		opts = *o
	}
	if u.Scheme != "nats" || u.Host == "" || u.Opaque != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return opts, nil, errors.New("a URL of NATS is nats://host:port")
	}
	if addrs, err = natsconn.Params(u, opts.set); err != nil {
		return opts, nil, err
	}
	opts, err = opts.settled()
	return opts, addrs, err
}

func (o *Options) set(param, value string) (err error) {
	switch param {
	case "stream":
		o.Stream = value
	case "subject":
		o.Subject = value
	case "create":
		var create bool
		create, err = strconv.ParseBool(value)
		o.Existing = !create
	case "replicas":
		o.Replicas, err = strconv.Atoi(value)
	case "retention":
		o.Retention, err = time.ParseDuration(value)
	case "storage":
		o.Memory, err = natsconn.InMemory(value)
	default:
		return fmt.Errorf("no parameter %q; there are addr, stream, subject, create, replicas, retention, storage, holdfast_tls_ca, holdfast_tls_cert and holdfast_tls_key", param)
	}
	if err != nil {
		return fmt.Errorf("%s=%q: %v", param, value, cmp.Or(errors.Unwrap(err), err))
	}
	return nil
}
