// Package script lets you tell the state machine of package core a story in
// plain lines, and read what it answers in plain lines.
//
// A file is a list of blocks. The lines of a block up to "----" are input, the
// lines after it, up to the next empty line, are the whole expected output.
// Lines that begin with # are comments.
//
//	open A ttl=30s                     A's session; owner=, meta=, ns=, id=, window=, policy=next|never, grace=, fresh
//	keep A                             a renewal; ttl=
//	at 31s                             cluster time; alone: an entry with nothing but the time
//	A acquire jobs try                 try, reentrant, wait=, max=, min=, delay=, value=, owner=
//	A acquire r:config w:log s:gpu*2/4 e:boss l:gate/3 b:party/2
//	                                   reader, writer, semaphore (weight 2 of 4), election, latch, barrier
//	A release 3 | A release jobs token=7
//	A cancel 3 · A extend 3 max=1m · A upgrade 3 wait=5s · A downgrade 3
//	A proclaim 3 value=x · A handover 3 owner=bob
//	A force jobs token=7 now · A revoke B now
//	A resize gpu 5 · A delete semaphore gpu
//	A count orders add 5 unsigned      load, add, sub, store, swap
//	A reserve ids 10 start=100 · A countdown gate 1 limit=3
//	A txn if k version = 0 , k value = x then put k v session=A expire=5s , get k else del k
//	A end
//	retry                              the last frame again; "retry A 3": the one with A's number 3
//	table A · inspect jobs · due       what the machine knows
//	snapshot                           go on with a machine restored from a snapshot of this one
//	config budget=3 window=4           begin with an empty machine and these limits
//	batch                              first line of a block: all its lines are one entry
//
// Numbers are given to commands in turn, for each session; seq=7 sets one, and
// mark=3 the mark of the frame. Lines of one session that follow each other in
// a batch are one frame, unless a line "frame" stands between them; "freeze",
// "unfreeze", "forget SECONDS" and "raise REVISION" make the entry one of that kind.
package script

import (
	"errors"
	"fmt"
	"strings"
)

// Block is a piece of a script.
type Block struct {
	Line   int      // of its first input line
	Head   []string // comments and empty lines before it
	Input  []string
	Output string // expected
}

// Parse cuts a script into blocks.
func Parse(text string) ([]Block, error) {
	var blocks []Block
	var b Block
	in := &b.Head
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "----":
			if len(b.Input) == 0 {
				return nil, fmt.Errorf("line %d: ---- without input before it", i+1)
			}
			in = nil
		case in == nil && line != "":
			b.Output += line + "\n"
		case in == nil:
			blocks = append(blocks, b)
			b = Block{Head: []string{""}}
			in = &b.Head
		case strings.HasPrefix(line, "#") || line == "":
			b.Head = append(b.Head, line)
		default:
			if len(b.Input) == 0 {
				b.Line = i + 1
			}
			b.Input = append(b.Input, line)
		}
	}
	if in != nil && len(b.Input) > 0 {
		return nil, fmt.Errorf("line %d: no ---- after the input", b.Line)
	}
	if in == nil {
		blocks = append(blocks, b)
	}
	if len(blocks) == 0 {
		return nil, errors.New("no block: write input, then ----, then the output")
	}
	return blocks, nil
}

// Format is the script with got[i] as the output of block i.
func Format(blocks []Block, got []string) string {
	var s strings.Builder
	for i, b := range blocks {
		for _, line := range b.Head {
			s.WriteString(line + "\n")
		}
		s.WriteString(strings.Join(b.Input, "\n") + "\n----\n" + got[i])
	}
	return s.String()
}
