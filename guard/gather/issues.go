package gather

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/strictjson"
)

// Issue is one issue of a tracker.
type Issue struct {
	ID string `json:"id"`
	// Status is open or closed, or what else the tracker says. Every status but closed,
	// done and completed counts as open.
	Status    string   `json:"status"`
	Milestone string   `json:"milestone,omitempty"`
	Labels    []string `json:"labels,omitempty"`
	Assignees []string `json:"assignees,omitempty"`
}

func (i *Issue) open() bool {
	return !slices.Contains([]string{"closed", "done", "completed"}, strings.ToLower(i.Status))
}

// filter is what issues_complete asks for: words such as milestone:v2 label:bug, all of
// which have to match. Quote a value with blanks: milestone:"spring 26". All but labels are there
// once.
type filter struct {
	milestone string
	labels    []string
	assignee  string
	repo      string
	// fold: labels and assignees match whatever their case, as those of GitHub do.
	fold bool
}

func parseFilter(text string) (f filter, err error) {
	words, err := words(text)
	if err != nil {
		return f, err
	}
	seen := map[string]bool{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, ":")
		if value == "" {
			return f, fmt.Errorf("the filter %q: %q is not key:value", text, w)
		}
		if seen[key] {
			return f, fmt.Errorf("the filter %q: it has %s twice, and one alone would count", text, key)
		}
		seen[key] = key != "label"
		switch key {
		case "milestone":
			f.milestone = value
		case "label":
			f.labels = append(f.labels, value)
		case "assignee":
			f.assignee = value
		case "repo":
			if f.repo = value; !repoForm.MatchString(value) {
				return f, fmt.Errorf("the filter %q: %q is no repository: give owner/name", text, value)
			}
		default:
			return f, fmt.Errorf("the filter %q: %q is none of milestone, label, assignee, repo", text, key)
		}
	}
	return f, nil
}

// words parts a text at blanks outside of double quotes.
func words(text string) (list []string, err error) {
	quoted := false
	var word strings.Builder
	for _, r := range text + " " {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ' ' && !quoted:
			if word.Len() > 0 {
				list = append(list, word.String())
			}
			word.Reset()
		default:
			word.WriteRune(r)
		}
	}
	if quoted {
		return nil, fmt.Errorf("the filter %q: a quote has no end", text)
	}
	return list, nil
}

func (f *filter) match(i *Issue) bool {
	for _, l := range f.labels {
		if !f.among(i.Labels, l) {
			return false
		}
	}
	return (f.milestone == "" || f.milestone == i.Milestone) && (f.assignee == "" || f.among(i.Assignees, f.assignee))
}

func (f *filter) among(list []string, name string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == name || f.fold && strings.EqualFold(s, name) })
}

// complete counts the issues of a filter.
func (f *filter) count(list []Issue, into *guard.Fact) {
	for i := range list {
		if !f.match(&list[i]) {
			continue
		}
		if into.Total++; list[i].open() {
			into.Number++
		}
	}
}

// IssueFile is a tracker in a JSON file: a list of [Issue], which may have a title and a url, too. A file with
// anything else in it decides nothing.
type IssueFile struct {
	Path string
	// Every is how often the file is looked at while somebody waits; default 1 s.
	Every time.Duration

	last issues // of which within lets only one call know at a time
}

// issues are those of a text with that sum, or what is wrong with it.
type issues struct {
	sum  [sha256.Size]byte
	list []Issue
	err  error
}

// maxIssueFile bounds the file.
const maxIssueFile = 16 << 20

// Find reads the file.
func (s *IssueFile) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	list, err := within(ctx, s.Path, s.read)
	return each(ctx, inputs, func(_ context.Context, in guard.Input) (guard.Fact, error) {
		f := guard.Fact{From: s.Path}
		switch {
		case err != nil:
			return f, err
		case in.Source == guard.SourceIssues:
			want, err := parseFilter(in.Name)
			if err == nil && want.repo != "" {
				err = fmt.Errorf("the filter %q: a file has no repositories: leave repo: out", in.Name)
			}
			want.count(list, &f)
			return f, err
		}
		i := slices.IndexFunc(list, func(i Issue) bool { return i.ID == in.Name })
		if i < 0 {
			return f, fmt.Errorf("%s has no issue %q", s.Path, in.Name)
		}
		f.Is, f.Text = true, list[i].Status
		return f, nil
	})
}

// read reads the file, and a text that it had before no second time: a wait looks every second.
func (s *IssueFile) read() ([]Issue, error) {
	b, err := s.bytes()
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); sum != s.last.sum {
		list, err := s.parse(b)
		s.last = issues{sum, list, err}
	}
	return s.last.list, s.last.err
}

func (s *IssueFile) bytes() ([]byte, error) {
	info, err := os.Stat(s.Path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxIssueFile {
		return nil, fmt.Errorf("%s is no file of at most %d MiB", s.Path, maxIssueFile>>20)
	}
	return os.ReadFile(s.Path)
}

func (s *IssueFile) parse(b []byte) (list []Issue, err error) {
	var all []json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil || all == nil {
		return nil, fmt.Errorf("%s is no list of issues: %w", s.Path, cmp.Or(err, errors.New("it is null")))
	}
	places := map[string]int{}
	for i, one := range all {
		issue, err := parseIssue(one)
		if err == nil && places[issue.ID] > 0 {
			err = fmt.Errorf("its id %q is that of issue %d", issue.ID, places[issue.ID])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: issue %d: %w", s.Path, i+1, err)
		}
		places[issue.ID] = i + 1
		list = append(list, issue)
	}
	return list, nil
}

// parseIssue reads an issue strictly: with a word that is mistyped it would count as another than it is.
func parseIssue(text []byte) (Issue, error) {
	var i *struct {
		Issue
		Title any `json:"title"` // for people
		URL   any `json:"url"`
	}
	err := strictjson.Unmarshal(text, &i)
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case is && wrong.Field != "":
		return Issue{}, fmt.Errorf("its %s is a JSON %s; texts, and lists of texts for labels and assignees, are possible", strings.TrimPrefix(wrong.Field, "Issue."), wrong.Value)
	case is || err == nil && i == nil:
		return Issue{}, errors.New("it is no JSON object")
	case err != nil:
		return Issue{}, fmt.Errorf("%w; id, status, milestone, labels, assignees, title and url are possible, each once", err)
	case i.ID == "" || i.Status == "":
		return Issue{}, fmt.Errorf("it has the id %q and the status %q, and needs both", i.ID, i.Status)
	}
	return i.Issue, nil
}

// Follow looks every so often.
func (s *IssueFile) Follow(ctx context.Context, wanted func() []guard.Input, changed func(...guard.Input)) {
	poll(ctx, orElse(s.Every, time.Second), wanted, changed)
}
