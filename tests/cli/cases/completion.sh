# bash completes verbs, options and their values; where it is offered nothing, file names.
deltawire completion bash > completion.bash
source completion.bash
complete_words() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  _deltawire
  printf '%s\n' "${COMPREPLY[@]}"
}
complete -p deltawire
complete_words deltawire in
complete_words deltawire v
complete_words deltawire diff --co
complete_words deltawire simulate --s
complete_words deltawire diff --codec g
complete_words deltawire bench --codec sl
complete_words deltawire completion ""
complete_words deltawire help ins
complete_words deltawire inspect check
complete_words deltawire diff -o ""

# In a real shell, on a terminal: a name with a space arrives in one piece.
cp $TESTS/golden/v1/gaps.safetensors 'my delta.safetensors'
python3 - <<'END'
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
os.write(terminal, b"source completion.bash; unset HISTFILE\ndeltawire inspect my\t> out.txt\nexit\n")
try:
    while os.read(terminal, 4096): pass
except OSError: pass
os.waitpid(pid, 0)
END
head -1 out.txt

# zsh reads the same script; fish has its own.
deltawire completion zsh | sed -n 1,2p
deltawire completion fish | grep 'simulate.*-l seed'
deltawire completion fish | grep 'diff.*-l codec'
deltawire completion fish | grep 'from completion.*zsh'
deltawire completion --json fish | python3 -c "import json, sys; print(list(json.load(sys.stdin)))"

deltawire completion
deltawire completion tcsh
