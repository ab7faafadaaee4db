package driver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Error says operation, name, kind, cause, and what to do next.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("holdfast")
	for _, part := range []string{e.where(), e.what(), e.cause(), e.advice()} {
		if part != "" {
			b.WriteString(": ")
			b.WriteString(part)
		}
	}
	return b.String()
}

// where is the operation and the name, if they are known.
func (e *Error) where() string {
	if e.Name == "" {
		return e.Op
	}
	return strings.TrimPrefix(fmt.Sprintf("%s %q", e.Op, e.Name), " ")
}

func (e *Error) what() string {
	if e.Kind == nil {
		return ""
	}
	if e.Kind != ErrHeld || len(e.Holders) == 0 {
		return kind(e.Kind).Error()
	}
	h := e.Holders[0]
	s := fmt.Sprintf("held by %s (token %d, for %s)", orSomebody(h.Owner), h.Token, h.Held.Round(time.Millisecond))
	if n := len(e.Holders) - 1; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	if e.Waiting > 0 {
		s += fmt.Sprintf(", %d waiting", e.Waiting)
	}
	return s
}

func orSomebody(owner string) string {
	if owner == "" {
		return "somebody"
	}
	if !utf8.ValidString(owner) || strings.ContainsFunc(owner, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return strconv.Quote(owner) // it may say anything to the terminal that shows the error
	}
	return owner
}

// cause is the text of Err without the kind at its end: the kind stands before it already.
func (e *Error) cause() string {
	switch {
	case e.Err == nil || e.Err == e.Kind:
		return ""
	case e.Kind == nil:
		return e.Err.Error()
	}
	told := kind(e.Kind).Error()
	if text := e.Err.Error(); text != told {
		return strings.TrimSuffix(text, ": "+told)
	}
	return ""
}

func (e *Error) advice() string {
	if e.RetryAfter > 0 {
		return "try again in " + e.RetryAfter.Round(time.Millisecond).String()
	}
	return ""
}

// Unwrap gives errors.Is the kind and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, kind(e.Kind))
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Errorf makes an Error that certainly changed nothing: the shape of every
// refusal. kind may be any error; the text says why and what to do.
func Errorf(op, name string, kind error, format string, args ...any) *Error {
	return &Error{Op: op, Name: name, Kind: kind, Outcome: NotDone, Err: fmt.Errorf(format, args...)}
}
