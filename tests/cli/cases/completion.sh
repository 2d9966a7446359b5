# bash completes verbs, options and files.
deltawire completion bash > completion.bash
source completion.bash
complete_words() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  _deltawire
  printf '%s\n' "${COMPREPLY[@]}"
}
complete_words deltawire in
complete_words deltawire v
complete_words deltawire diff --co
complete_words deltawire simulate --s
touch checkpoint.safetensors
complete_words deltawire inspect check

# zsh reads the same script; fish has its own.
deltawire completion zsh | sed -n 1,2p
deltawire completion fish | grep 'simulate.*-l seed'
deltawire completion --json fish | python3 -c "import json, sys; print(list(json.load(sys.stdin)))"

deltawire completion
deltawire completion tcsh
