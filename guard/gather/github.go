package gather

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// GitHub reads issues by the REST interface of GitHub, or of a server that speaks it. An
// issue is "12" or "owner/repo#12"; a filter has milestone:, label:, assignee: and repo:, of
// which labels and assignees match whatever their case.
// Pull requests are no issues.
//
// What was read before is asked for by its ETag: an answer that has not changed costs
// nothing of the quota. Looks at the same moment share a request. After a refusal for too
// many requests nothing is asked until the server wants to be asked again.
type GitHub struct {
	// URL is the base; default https://api.github.com.
	URL string
	// Repo is owner/name, for issues and filters that name none.
	Repo string
	// Token goes into the header Authorization; empty: none. No redirect takes it to another server, port or scheme.
	Token string
	// Client is the HTTP client; default one of its own. With a CheckRedirect of its own, that decides.
	Client *http.Client
	// Every is how often it is asked while somebody waits; default 1 min.
	Every time.Duration

	mu      sync.Mutex
	known   map[string]page // by URL
	bytes   int             // of their bodies
	until   time.Time       // nothing is asked before
	why     string
	answers shared[string, page] // by URL
}

// page is an answer that is kept for its ETag.
type page struct {
	etag string
	body []byte
	more bool // the server has a next one
}

const (
	maxPages    = 50
	perPage     = 100
	maxBody     = 8 << 20
	maxKnown    = 200
	maxBytes    = 32 << 20 // kept for their ETags
	defaultWait = time.Minute
	longestWait = time.Hour
)

// Find asks the server.
func (s *GitHub) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	return each(ctx, inputs, func(ctx context.Context, in guard.Input) (guard.Fact, error) {
		f := guard.Fact{From: s.base()}
		if in.Source == guard.SourceIssues {
			want, err := parseFilter(in.Name)
			if err == nil {
				err = want.ofGitHub()
			}
			if err == nil {
				err = s.count(ctx, &want, &f)
			}
			return f, err
		}
		err := s.status(ctx, in.Name, &f)
		return f, err
	})
}

// ofGitHub has the filter match as the server does, and refuses what that takes for something
// else: then none would match, for ever.
func (f *filter) ofGitHub() error {
	f.fold = true
	for _, l := range f.labels {
		if strings.Contains(l, ",") {
			return fmt.Errorf("the label %q: GitHub takes a comma for the end of a label", l)
		}
	}
	if f.assignee == "none" || f.assignee == "*" {
		return fmt.Errorf("the assignee %q is a word of GitHub, and no login: name one, or leave it out", f.assignee)
	}
	return nil
}

// Follow asks every so often.
func (s *GitHub) Follow(ctx context.Context, wanted func() []guard.Input, changed func(...guard.Input)) {
	poll(ctx, orElse(s.Every, time.Minute), wanted, changed)
}

func (s *GitHub) base() string {
	return strings.TrimSuffix(cmp.Or(s.URL, "https://api.github.com"), "/")
}

var (
	repoForm  = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*/[A-Za-z0-9_-][A-Za-z0-9_.-]*$`)
	issueForm = regexp.MustCompile(`^([^#]*#)?([0-9]{1,12})$`)
)

func (s *GitHub) repo(name string) (string, error) {
	name = cmp.Or(name, s.Repo)
	if !repoForm.MatchString(name) {
		return "", fmt.Errorf("%q is no repository: give owner/name", name)
	}
	return s.base() + "/repos/" + name, nil
}

// remote is an issue as the server tells it.
type remote struct {
	Number    int64
	State     string
	Milestone *struct{ Title string }
	Labels    []struct{ Name string }
	Assignees []struct{ Login string }
	Pull      json.RawMessage `json:"pull_request"`
}

func (r *remote) issue() Issue {
	i := Issue{ID: strconv.FormatInt(r.Number, 10), Status: r.State}
	if r.Milestone != nil {
		i.Milestone = r.Milestone.Title
	}
	for _, l := range r.Labels {
		i.Labels = append(i.Labels, l.Name)
	}
	for _, a := range r.Assignees {
		i.Assignees = append(i.Assignees, a.Login)
	}
	return i
}

// pull reports that it is a pull request.
func (r *remote) pull() bool { return len(r.Pull) > 0 && string(r.Pull) != "null" }

func (s *GitHub) status(ctx context.Context, name string, f *guard.Fact) error {
	m := issueForm.FindStringSubmatch(name)
	if m == nil {
		return fmt.Errorf("%q is no issue: give its number, or owner/repo#number", name)
	}
	repo, err := s.repo(strings.TrimSuffix(m[1], "#"))
	if err != nil {
		return err
	}
	var got remote
	if _, err := s.get(ctx, repo+"/issues/"+m[2], &got); err != nil {
		return err
	}
	switch {
	case got.State == "":
		return fmt.Errorf("%s: the answer is no issue", s.base())
	case got.pull():
		return fmt.Errorf("%s: %q is a pull request, and no issue: name the issue that it is for", s.base(), name)
	}
	f.Is, f.Text = true, got.State
	return nil
}

// count counts the issues of a filter, page by page.
func (s *GitHub) count(ctx context.Context, want *filter, f *guard.Fact) error {
	repo, err := s.repo(want.repo)
	if err != nil {
		return err
	}
	q := url.Values{"state": {"all"}, "per_page": {strconv.Itoa(perPage)}, "sort": {"created"}, "direction": {"asc"}}
	if len(want.labels) > 0 {
		q.Set("labels", strings.Join(want.labels, ","))
	}
	if want.assignee != "" {
		q.Set("assignee", want.assignee)
	}
	if want.milestone != "" {
		number, none, err := s.milestone(ctx, repo, want.milestone)
		if err != nil || none {
			return err
		}
		if number > 0 {
			q.Set("milestone", strconv.FormatInt(number, 10))
		}
	}
	first, guessed := int64(0), false
	for n := 1; n <= maxPages; n++ {
		q.Set("page", strconv.Itoa(n))
		var got []remote
		more, err := s.get(ctx, repo+"/issues?"+q.Encode(), &got)
		if err != nil {
			return err
		}
		if len(got) == 0 || guessed && got[0].Number == first { // others have one page alone, whatever is asked for
			return nil
		}
		first = got[0].Number
		var list []Issue
		for i := range got {
			if !got[i].pull() {
				list = append(list, got[i].issue())
			}
		}
		want.count(list, f)
		if guessed = !more && len(got) < perPage; guessed && s.tellsNext() {
			return nil
		}
	}
	return fmt.Errorf("%s: more than %d issues and pull requests have to be read: narrow the filter by a label or an assignee", s.base(), maxPages*perPage)
}

// tellsNext reports that the server is known to tell of every next page; of another one an empty
// page is the end, so that open issues on a second page of thirty are not overlooked.
func (s *GitHub) tellsNext() bool { return s.URL == "" }

// milestone finds the number of a milestone, by which issues are asked for; none: there is no
// such milestone, and 0: the server has no list of them, so that all issues have to be read.
func (s *GitHub) milestone(ctx context.Context, repo, title string) (number int64, none bool, err error) {
	for n := 1; n <= maxPages; n++ {
		var got []struct {
			Number int64
			Title  string
		}
		more, err := s.get(ctx, fmt.Sprintf("%s/milestones?state=all&per_page=%d&page=%d", repo, perPage, n), &got)
		if errors.Is(err, errNotThere) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		for _, m := range got {
			if m.Title == title {
				return m.Number, false, nil
			}
		}
		if len(got) == 0 || !more && len(got) < perPage && s.tellsNext() {
			return 0, true, nil
		}
	}
	return 0, false, nil
}

// errNotThere is an answer of 404 or 401.
var errNotThere = errors.New("it is not there, or the token may not see it")

// get reads one answer, and reports whether the server has a next page.
func (s *GitHub) get(ctx context.Context, address string, into any) (more bool, err error) {
	p, err := s.answers.ask(ctx, address, func() (page, error) { return s.ask(ctx, address) })
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(p.body, into); err != nil {
		return false, fmt.Errorf("%s: the answer is not the JSON of GitHub: %w", s.base(), err)
	}
	return p.more, nil
}

// ask makes one request.
func (s *GitHub) ask(ctx context.Context, address string) (page, error) {
	before, err := s.before(address)
	if err != nil {
		return page{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return page{}, err
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	if before.etag != "" {
		req.Header.Set("If-None-Match", before.etag)
	}
	res, err := s.client().Do(req)
	if err != nil {
		return page{}, err
	}
	defer res.Body.Close()
	return s.page(res, address, before)
}

// client follows redirects as net/http does, but never with the token to another server.
func (s *GitHub) client() *http.Client {
	c := http.Client{}
	if s.Client != nil {
		c = *s.Client
	}
	if c.CheckRedirect == nil && s.Token != "" {
		c.CheckRedirect = stays
	}
	return &c
}

// stays refuses a redirect that leaves the server, or its encryption: net/http would send the header
// Authorization to any port of the same host, and from https to http.
func stays(next *http.Request, via []*http.Request) error {
	if at := via[0].URL; next.URL.Scheme != at.Scheme || next.URL.Host != at.Host {
		return fmt.Errorf("it redirects to %s://%s, which is not given the token: name that as the URL, if it is right", next.URL.Scheme, next.URL.Host)
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// before is what is known of an address; an error: the server wants to be left alone.
func (s *GitHub) before(address string) (page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(s.until); left > 0 {
		return page{}, fmt.Errorf("%s; it is asked again in %s", s.why, left.Round(time.Second))
	}
	return s.known[address], nil
}

func (s *GitHub) page(res *http.Response, address string, before page) (page, error) {
	switch res.StatusCode {
	case http.StatusNotModified:
		if before.etag != "" {
			return before, nil
		}
	case http.StatusOK:
		b, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
		if err == nil && len(b) > maxBody {
			err = fmt.Errorf("%s: the answer has more than %d MiB", s.base(), maxBody>>20)
		}
		p := page{res.Header.Get("ETag"), b, strings.Contains(res.Header.Get("Link"), `rel="next"`)}
		if err == nil {
			s.keep(address, p)
		}
		return p, err
	case http.StatusForbidden, http.StatusTooManyRequests:
		return page{}, s.refused(res, address)
	case http.StatusNotFound, http.StatusUnauthorized:
		return page{}, fmt.Errorf("%s: %s: %w", address, res.Status, errNotThere)
	}
	return page{}, fmt.Errorf("%s: %s", address, res.Status)
}

// refused tells a server that wants to be left alone from one that does not show this address
// to the token: the other addresses are asked then all the same.
func (s *GitHub) refused(res *http.Response, address string) error {
	var said struct{ Message string }
	b, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	_ = json.Unmarshal(b, &said) // one that says nothing has said nothing
	if res.StatusCode == http.StatusForbidden && res.Header.Get("Retry-After") == "" && res.Header.Get("X-RateLimit-Remaining") != "0" &&
		!strings.Contains(strings.ToLower(said.Message), "rate limit") {
		return fmt.Errorf("%s: %s: %s", address, res.Status, cmp.Or(said.Message, "the token may not see it"))
	}
	return s.leaveAlone(res)
}

func (s *GitHub) keep(address string, p page) {
	if p.etag == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += len(p.body) - len(s.known[address].body)
	if s.known == nil || len(s.known) >= maxKnown || s.bytes > maxBytes {
		s.known, s.bytes = map[string]page{}, len(p.body)
	}
	s.known[address] = p
}

// leaveAlone notes when to ask again.
func (s *GitHub) leaveAlone(res *http.Response) error {
	wait := defaultWait
	if n, err := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 32); err == nil && n >= 0 {
		wait = time.Duration(n) * time.Second
	} else if at, err := strconv.ParseInt(res.Header.Get("X-RateLimit-Reset"), 10, 64); err == nil && res.Header.Get("X-RateLimit-Remaining") == "0" {
		wait = time.Until(time.Unix(at, 0))
	}
	wait = min(max(wait, time.Second), longestWait)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until, s.why = time.Now().Add(wait), fmt.Sprintf("%s refused with %s", s.base(), res.Status)
	return fmt.Errorf("%s; it is asked again in %s", s.why, wait.Round(time.Second))
}
