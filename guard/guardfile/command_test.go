package guardfile_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/guard/guardfile"
)

func parseRun(list string) error {
	file := "pipeline: p\nparams: {s: {}, n: {type: integer}}\nphases: [{name: a, run: [" + list + "]}]"
	_, err := guardfile.ParsePipeline("f.yaml", []byte(file), map[string]string{"s": "id", "n": "5"})
	return err
}

// "a parameter after the `-c` of a shell (or `+c`), in a `custom_check` or for a program is refused":
// also where another program runs the program, or splits a text into one.
func TestParsePipeline_NoParameterIsRun(t *testing.T) {
	for list, want := range map[string]string{
		`sh, +c, "${s}"`:                      "text of a shell",
		`dash, +ec, "${s}"`:                   "text of a shell",
		`env, -S, "sh -c ${s}"`:               "text of a shell",
		`env, "-Ssh -c", "${s}"`:              "text of a shell",
		`env, -iS, "${s}"`:                    "text of a shell",
		`env, -u, HOME, "--split=${s}"`:       "text of a shell",
		`fish, "-c${s}"`:                      "text of a shell",
		`fish, "-C${s}"`:                      "text of a shell",
		`fish, "--comm=${s}"`:                 "text of a shell",
		`bash, "-${s}", "touch x"`:            "text of a shell",
		`sudo, fish, -N, "-e${s}"`:            "text of a shell",
		`pwsh, -Command, "${s}"`:              "text of a shell",
		`su, "-", ann, -c, "${s}"`:            "text of a shell",
		`script, "-c${s}"`:                    "text of a shell",
		`nice, runuser, --command, "${s}"`:    "text of a shell",
		`flock, -n, /tmp/x, -c, "${s}"`:       "text of a shell",
		`flock, /tmp/x, --command, "${s}"`:    "text of a shell",
		`env, "${s}"`:                         "cannot be a parameter",
		`env, -, A=1, "B=${s}", "${s}"`:       "cannot be a parameter",
		`/usr/bin/nice, "${s}"`:               "cannot be a parameter",
		`nice, -n, "${n}", "${s}"`:            "cannot be a parameter",
		`nice, -n10, "${s}"`:                  "cannot be a parameter",
		`timeout, "5", "${s}"`:                "cannot be a parameter",
		`timeout, --sig, TERM, "5", "x${s}"`:  "cannot be a parameter",
		`timeout, --signal=TERM, "5", "${s}"`: "cannot be a parameter",
		`timeout, --, "5", nice, "${s}"`:      "cannot be a parameter",
		`flock, -w, "3", /tmp/x, "${s}"`:      "cannot be a parameter",
	} {
		if err := parseRun(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("[%s]: %v; want %s", list, err, want)
		}
	}
}

// A shell is known also by a name that tells which one of several it is, or which is like those of shells.
func TestParsePipeline_ShellNames(t *testing.T) {
	for _, name := range []string{"ksh93", "rksh", "bash-static", "zsh-static", "zsh5", "zsh-5.9", "mksh-static", "lksh", "oksh", "posh", "yash", "sash", "pdksh", "pwsh", "xonsh", "nu", "BASH.EXE"} {
		for _, list := range []string{name + `, -c, "${s}"`, `sudo, /opt/bin/` + name + `, -ec, "${s}"`} {
			if err := parseRun(list); err == nil || !strings.Contains(err.Error(), "text of a shell") {
				t.Errorf("[%s]: %v", list, err)
			}
		}
	}
	for _, list := range []string{`mush, -c, "${s}"`, `env, ./newsh2, -xc, "${s}"`, `mush, "-c${s}"`, `mush, "--command=${s}"`} {
		if err := parseRun(list); err == nil || !strings.Contains(err.Error(), "text of a shell") {
			t.Errorf("[%s]: %v", list, err)
		}
	}
}

// Values of options, of variables and of the arguments of a program may be parameters, also behind
// programs that run another.
func TestParsePipeline_WrappedArguments(t *testing.T) {
	for _, list := range []string{
		`env, "A=${s}", make, "${s}"`, `env, -u, "${s}", make`, `env, "-u${s}", make, -S, "${s}"`, `env, "--unset=${s}", make`,
		`nice, -n, "${n}", make, "${s}"`, `timeout, -k, "${n}", "${n}", make, "${s}"`, `timeout, --signal, "${s}", "5", make`,
		`flock, "${s}", make, -c, "${s}"`, `nohup, git, -c, "user.name=${s}", commit`, `ionice, -p, "${n}"`,
		`sh, "${s}"`, `sh, -e, "${s}"`, `sh, +e, "${s}"`, `sh, x.sh, "--branch=${s}"`, `sh, x.sh, "-n${s}"`, `bash, "--rcfile=${s}"`,
		`git, push, --force-with-lease, "${s}"`, `git, push, -c, "${s}"`, `./publish, --channel, "${s}"`, `publish, -src, "${s}"`, `publish, "--commit=${s}"`,
		`publish.sh, -c, "${s}"`, `grep, -c, "${s}"`, `ping, -c, "${n}", "${s}"`, `tar, -c, "${s}"`, `bash-completion, -c, "${s}"`,
	} {
		if err := parseRun(list); err != nil {
			t.Errorf("[%s]: %v", list, err)
		}
	}
}
