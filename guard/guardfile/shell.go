package guardfile

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// version is what stands behind the name of a shell of which there are several: ksh93, zsh-5.9, bash-static.
const version = `([0-9][0-9a-z.+]*)?(-[0-9][0-9a-z.+]*)?(-static)?(\.exe)?$`

var (
	// shell is a program that reads a text as commands, known by its name wherever that stands.
	shell = regexp.MustCompile(`^(sh|ash|r?bash|csh|dash|elvish|fish|hush|[dlmor]?ksh|nu|osh|pdksh|posh|powershell|pwsh|sash|tcsh|xonsh|yash|ysh|r?zsh)` + version)
	// likeShell is a program that could be one, or gives a text to one by the same option. Only the program of a command is
	// looked at: push and refresh are arguments, too.
	likeShell = regexp.MustCompile(`^([a-z]*sh|runuser|script|sg|su)` + version)
	// shortText ends with the letter after which the text is read, shortBegin is before it, and longText is the same in full.
	shortText  = regexp.MustCompile(`^[-+][abefhiklmnpstuvx]*c$`)
	shortBegin = regexp.MustCompile(`^[-+][a-z]*$`)
	longText   = regexp.MustCompile(`^--(init-)?c(o(m(m(a(n(ds?)?)?)?)?)?)?(=|$)`)
)

// textOptions are those by which a program reads a text as commands: in the argument after one, or in its own, of which
// the beginning is known. Of a shell any option with a c counts; to others most of those mean something else.
type textOptions struct{ known, capital bool }

func (o textOptions) next(option string) bool {
	if o.capital {
		option = strings.ToLower(option)
	}
	return o.known && strings.Contains(option, "c") || shortText.MatchString(option) || longText.MatchString(option)
}

// within is asked about the text before a parameter; first: nothing but options is before it, so that the parameter can
// be the c itself.
func (o textOptions) within(head string, first bool) bool {
	if strings.HasPrefix(head, "--") {
		return longText.MatchString(head)
	}
	return o.next(head) || o.known && first && shortBegin.MatchString(head)
}

// shellTexts are the arguments that a shell reads as commands if they are options, and from where on it reads all others.
func (p *parser) shellTexts(n *node, list []string, program int) (within []int, after int) {
	i, o := shellOf(list, program)
	first := true
	for i++; i < len(list); i++ {
		if !strings.HasPrefix(list[i], "-") && !strings.HasPrefix(list[i], "+") {
			first = false
			continue
		}
		if head, _, _ := strings.Cut(p.written(n.of[i]), "${"); o.within(head, first) {
			within = append(within, i)
		}
		if o.next(list[i]) {
			return within, i + 1
		}
	}
	return within, len(list)
}

// shellOf is which argument is a shell; all of them: none is.
func shellOf(list []string, program int) (int, textOptions) {
	name := func(i int) string { return strings.ToLower(path.Base(list[i])) }
	for i := range list {
		if shell.MatchString(name(i)) {
			capital := slices.ContainsFunc([]string{"fish", "powershell", "pwsh"}, func(s string) bool { return strings.HasPrefix(name(i), s) })
			return i, textOptions{true, capital}
		}
	}
	if program < len(list) && likeShell.MatchString(name(program)) {
		return program, textOptions{}
	}
	return len(list), textOptions{}
}
