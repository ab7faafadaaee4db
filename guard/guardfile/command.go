package guardfile

import (
	"path"
	"slices"
	"strings"
)

// wrapper is a program that runs the program which its arguments name.
type wrapper struct {
	letters string   // its options, of one letter, of which the next argument is the value
	long    []string // the same in full
	before  int      // arguments between its options and the program
}

// wrappers are known by name; what others run (ssh, xargs, sudo) is not.
var wrappers = map[string]wrapper{
	"env":     {letters: "Cua", long: []string{"chdir", "unset", "argv0"}},
	"flock":   {letters: "wE", long: []string{"timeout", "wait", "conflict-exit-code"}, before: 1},
	"ionice":  {letters: "cnpPu", long: []string{"class", "classdata", "pid", "pgid", "uid"}},
	"nice":    {letters: "n", long: []string{"adjustment"}},
	"nohup":   {},
	"setsid":  {},
	"stdbuf":  {letters: "ioe", long: []string{"input", "output", "error"}},
	"time":    {letters: "fo", long: []string{"format", "output"}},
	"timeout": {letters: "ks", long: []string{"kill-after", "signal"}, before: 1},
}

// run is a command with its arguments. Neither its program nor what a shell reads as commands is a
// parameter, also behind programs that run another. Other programs that run text (python -c, ssh) are not known.
func (p *parser) run(n *node) []string {
	list := p.texts(n, "run")
	if len(list) == 0 || len(list) != len(n.of) {
		if n.is == isList && len(n.of) == 0 {
			p.fail(n.place, "leave it out if nothing is run", "run has no program")
		}
		return list
	}
	for i, text := range list {
		if p.options[n.of[i]] {
			p.fail(n.of[i].place, "give the parameter before it a value", "%q begins with - by the values of its parameters, and could become an option of a program", clip(text))
		}
	}
	program, text := p.programs(n, list)
	within, after := p.shellTexts(n, list, program)
	for i, arg := range n.of {
		if p.filled[arg] != "" && (i >= min(text, after) || slices.Contains(within, i)) {
			p.fail(arg.place, "the command finds it in HOLDFAST_PARAM_name", "a parameter would become text of a shell")
		}
	}
	return list
}

// programs refuses parameters as the programs of a command, each wrapped by the one before, and
// answers with the last, and from where on a wrapper reads text as a command.
func (p *parser) programs(n *node, list []string) (program, text int) {
	i := 0
	for i < len(list) {
		if p.filled[n.of[i]] != "" || strings.HasPrefix(list[i], "-") {
			p.fail(n.of[i].place, "", "the program of a command cannot be a parameter or begin with -")
		}
		name := path.Base(list[i])
		w, known := wrappers[name]
		if !known {
			break
		}
		if i, text = w.options(name, list, i+1); text < len(list) {
			return i, text
		}
		i += w.before
		for name == "env" && i < len(list) && strings.Contains(p.written(n.of[i]), "=") {
			i++
		}
		if name == "flock" && i < len(list) && (list[i] == "-c" || list[i] == "--command") {
			return i, i + 1
		}
	}
	return i, len(list)
}

// written is a text as the file has it.
func (p *parser) written(n *node) string {
	if text := p.filled[n]; text != "" {
		return text
	}
	return n.text
}

// options answers with the first argument from i on that is no option nor the value of one, and with
// the first that env splits into a command.
func (w wrapper) options(name string, list []string, i int) (next, text int) {
	for i < len(list) && strings.HasPrefix(list[i], "-") {
		if list[i] == "--" {
			return i + 1, len(list)
		}
		valued, splits := w.option(list[i])
		if splits && name == "env" {
			return i, i
		}
		if i++; valued {
			i++
		}
	}
	return i, len(list)
}

// option reports whether the next argument is the option's value, and whether env splits its own.
func (w wrapper) option(text string) (valued, splits bool) {
	if long, is := strings.CutPrefix(text, "--"); is {
		name, _, attached := strings.Cut(long, "=")
		abbreviates := func(s string) bool { return strings.HasPrefix(s, name) }
		return !attached && slices.ContainsFunc(w.long, abbreviates), abbreviates("split-string")
	}
	for i := 1; i < len(text); i++ {
		if text[i] == 'S' {
			return false, true
		}
		if strings.IndexByte(w.letters, text[i]) >= 0 {
			return i == len(text)-1, false
		}
	}
	return false, false
}
