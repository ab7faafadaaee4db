package redishold

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// Client is a connection to Redis by any library, for [NewWith]: a few lines
// around a client that the program has already. It is safe for concurrent use.
//
// This is one for go-redis, where c is a redis.UniversalClient:
//
//	func (c client) Do(ctx context.Context, commands ...[]string) []redishold.Reply {
//		replies, sent := make([]redishold.Reply, len(commands)), make([]*redis.Cmd, len(commands))
//		_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error {
//			for i, words := range commands {
//				args := make([]any, len(words))
//				for j, w := range words {
//					args[j] = w
//				}
//				sent[i] = p.Do(ctx, args...)
//			}
//			return nil
//		})
//		for i := range sent {
//			if replies[i].Value, replies[i].Err = sent[i].Result(); errors.Is(replies[i].Err, redis.Nil) {
//				replies[i].Err = nil
//			}
//		}
//		return replies
//	}
//
//	func (c client) Subscribe(ctx context.Context, channel string, ready func(), hear func(string)) error {
//		sub := c.UniversalClient.Subscribe(ctx, channel)
//		defer sub.Close()
//		defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
//		for {
//			switch m, err := sub.Receive(ctx); m := m.(type) {
//			case *redis.Subscription:
//				ready()
//			case *redis.Message:
//				hear(m.Payload)
//			default:
//				return err
//			}
//		}
//	}
type Client interface {
	// Do sends commands, in one pipeline if there are several, and returns as
	// many replies. The first word is the command; the key by which a cluster
	// routes it is the second, of EVAL and EVALSHA the fourth. A command that may
	// have been sent must not be sent again by the library, unless it is one that
	// only reads: set its retries to none.
	Do(ctx context.Context, commands ...[]string) []Reply
	// Subscribe receives what is published on a channel until ctx ends or the
	// subscription breaks, and returns why. ready is called whenever a
	// subscription stands, hear with each message, in order; neither waits.
	Subscribe(ctx context.Context, channel string, ready func(), hear func(message string)) error
}

// Reply is a server's answer to a command.
type Reply struct {
	// Value is a string, an int64, nil, or a []any of these.
	Value any
	// Err is why there is none. One that the server answered with has a method
	// RedisError(), as those of go-redis do, and its text begins with the
	// server's word for it.
	Err error
}

// texts are a reply as a list, also if it is one alone.
func (r Reply) texts() ([]string, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	list, ok := r.Value.([]any)
	if !ok {
		list = []any{r.Value}
	}
	out := make([]string, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case nil:
		case string:
			out[i] = v
		case int64:
			out[i] = strconv.FormatInt(v, 10)
		default:
			return nil, fmt.Errorf("the client returned a %T where text belongs", v)
		}
	}
	return out, nil
}

// answer is a script's reply, or why there is none.
type answer struct {
	reply []string
	err   error
}

// engine is what a Space sends its commands by.
type engine interface {
	// quick is run for a script with a number alone as its usual answer: reply is nil
	// then.
	quick(ctx context.Context, s *script, keys, args []string) (n int64, reply []string, err error)
	run(ctx context.Context, s *script, keys, args []string) ([]string, error)
	// runAll runs s for each task, all in one pipeline.
	runAll(ctx context.Context, s *script, tasks []task) []answer
	// do sends plain commands with a key each in one pipeline; nil is "".
	do(ctx context.Context, commands ...[]string) []answer
	// receive is as Client.Subscribe.
	receive(ctx context.Context, channel string, ready func(), hear func(string)) error
	// single: there is one server and no failover; cluster: keys may move.
	single() bool
	cluster() bool
	close()
}

// byRueidis is the engine of URLs, and of callers' clients of rueidis.
type byRueidis struct {
	rueidis.Client
	own       bool           // the client is closed with the Space
	dedicated *dedicatedConn // nil: there is none
	batcher   *batcher       // nil: each call goes by itself
}

// send is Do, by the dedicated connection where that is quicker.
func (e byRueidis) send(ctx context.Context, command rueidis.Completed) (r rueidis.RedisResult) {
	if e.dedicated == nil || ctx.Err() != nil {
		return e.share(ctx, command)
	}
	defer e.dedicated.leave()
	if !e.dedicated.enter() {
		return e.share(ctx, command)
	}
	e.dedicated.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		r = c.Do(ctx, command)
		return r.NonRedisError()
	})
	return r
}

// share sends a command on the shared connections.
func (e byRueidis) share(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	if e.batcher == nil {
		return e.Do(ctx, command)
	}
	return e.batcher.do(ctx, e.Client, command)
}

// sendAll is send for several commands in one pipeline.
func (e byRueidis) sendAll(ctx context.Context, commands rueidis.Commands) (list []rueidis.RedisResult) {
	if e.dedicated == nil || ctx.Err() != nil {
		return e.DoMulti(ctx, commands...)
	}
	defer e.dedicated.leave()
	if !e.dedicated.enter() {
		return e.DoMulti(ctx, commands...)
	}
	e.dedicated.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		list = c.DoMulti(ctx, commands...)
		return list[len(list)-1].NonRedisError()
	})
	return list
}

func (e byRueidis) run(ctx context.Context, s *script, keys, args []string) ([]string, error) {
	return s.run(ctx, e.Client, keys, args)
}

func (e byRueidis) quick(ctx context.Context, s *script, keys, args []string) (int64, []string, error) {
	r := e.send(ctx, s.byHash(e.Client, keys, args))
	if m, err := r.ToMessage(); err == nil && m.IsInt64() {
		n, err := m.ToInt64()
		return n, nil, err
	}
	reply, err := texts(r)
	if unknown(err) {
		return number(texts(e.Do(ctx, s.whole(e.Client, keys, args))))
	}
	return 0, reply, err
}

// number tells an answer that is a number alone from others.
func number(reply []string, err error) (int64, []string, error) {
	if err != nil || len(reply) != 1 {
		return 0, reply, err
	}
	n, wrong := strconv.ParseInt(reply[0], 10, 64)
	if wrong != nil {
		return 0, reply, nil
	}
	return n, nil, nil
}

func (e byRueidis) runAll(ctx context.Context, s *script, tasks []task) []answer {
	return answers(s.runAll(ctx, e.Client, tasks))
}

func (e byRueidis) do(ctx context.Context, commands ...[]string) []answer {
	list := make(rueidis.Commands, len(commands))
	for i, words := range commands {
		b := e.B().Arbitrary(words[0])
		if len(words) > 1 {
			b = b.Keys(words[1]).Args(words[2:]...)
		}
		list[i] = b.Build()
	}
	return answers(e.sendAll(ctx, list))
}

func answers(results []rueidis.RedisResult) []answer {
	out := make([]answer, len(results))
	for i, r := range results {
		if out[i].reply, out[i].err = texts(r); rueidis.IsRedisNil(out[i].err) {
			out[i] = answer{reply: []string{""}}
		}
	}
	return out
}

func (e byRueidis) receive(ctx context.Context, channel string, ready func(), hear func(string)) error {
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" && s.Channel == channel {
			ready()
		}
	})
	subscribe, hearing := e.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { hear(m.Message) }
	if e.own {
		return e.Receive(ctx, subscribe, hearing)
	}
	conn, err := dedicated(ctx, e.Client)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Receive(ctx, subscribe, hearing)
}

// dedicated takes a connection of a caller's client, so that closing it ends a
// subscription that would otherwise stay as long as the client. UNSUBSCRIBE is
// never sent: rueidis sends a PING behind it, and panics if the server refuses
// that too, as one that is busy with a script or loads its data does.
func dedicated(ctx context.Context, rc rueidis.Client) (rueidis.DedicatedClient, error) {
	got := make(chan rueidis.DedicatedClient, 1)
	go func() {
		conn, _ := rc.Dedicate() // waits as long as the caller's pool is empty
		got <- conn
	}()
	select {
	case conn := <-got:
		return conn, nil
	case <-ctx.Done():
		go func() { (<-got).Close() }()
		return nil, ctx.Err()
	}
}

func (e byRueidis) single() bool  { return e.Mode() == rueidis.ClientModeStandalone }
func (e byRueidis) cluster() bool { return e.Mode() == rueidis.ClientModeCluster }

func (e byRueidis) close() {
	e.Client.Close()
	if e.dedicated != nil {
		e.dedicated.close()
	}
}

// byCaller is the engine of a Client. What stands behind it is not known, so it
// may be a cluster, and may forget.
type byCaller struct{ Client }

func (e byCaller) run(ctx context.Context, s *script, keys, args []string) ([]string, error) {
	a := e.runAll(ctx, s, []task{{keys, args}})[0]
	return a.reply, a.err
}

func (e byCaller) quick(ctx context.Context, s *script, keys, args []string) (int64, []string, error) {
	return number(e.run(ctx, s, keys, args))
}

func (e byCaller) runAll(ctx context.Context, s *script, tasks []task) []answer {
	commands := make([][]string, len(tasks))
	for i, t := range tasks {
		commands[i] = t.command("EVALSHA", s.sha)
	}
	out := e.do(ctx, commands...)
	for i, a := range out {
		if unknown(a.err) {
			out[i] = e.do(ctx, tasks[i].command("EVAL", s.text))[0]
		}
	}
	return out
}

func (t task) command(name, script string) []string {
	words := append([]string{name, script, strconv.Itoa(len(t.keys))}, t.keys...)
	return append(words, t.args...)
}

// do ends with ctx, also if the library does not look at it.
func (e byCaller) do(ctx context.Context, commands ...[]string) []answer {
	done := make(chan []Reply, 1)
	go func() { done <- e.Do(ctx, commands...) }()
	out := make([]answer, len(commands))
	select {
	case replies := <-done:
		for i := range out {
			if i < len(replies) {
				out[i].reply, out[i].err = replies[i].texts()
			} else {
				out[i].err = errors.New("the client returned fewer replies than it was given commands")
			}
		}
	case <-ctx.Done():
		for i := range out {
			out[i].err = ctx.Err()
		}
	}
	return out
}

func (e byCaller) receive(ctx context.Context, channel string, ready func(), hear func(string)) error {
	return e.Subscribe(ctx, channel, ready, hear)
}

func (byCaller) single() bool  { return false }
func (byCaller) cluster() bool { return true }
func (byCaller) close()        {}
