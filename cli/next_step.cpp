#include "cli/next_step.h"

#include <algorithm>
#include <optional>

namespace deltawire::cli {
namespace {

// Words of a message, and what to do about it; with a code, only in failures of that kind.
struct Known {
  std::string_view words, next;
  Code code = Code::kOk;
};

// The first that is found counts.
constexpr Known kKnown[] = {
    // Messages that say it themselves.
    {"see deltawire ", ""},
    {"choose another name", ""},
    {"choose an empty place", ""},
    {"choose a name that", ""},
    {"give ", ""},
    {"--force ", ""},
    {"say --", ""},
    {"move it away", ""},
    {"chmod 600", ""},
    {"publish again", ""},
    {"put the key into", ""},
    {"such as ", ""},
    {"; write ", ""},
    {"; try ", ""},
    {"a clone: make build", ""},
    {"readers need the .pub", ""},
    {"way out: ", ""},
    {"is --base", ""},
    {"with a --base that has it", ""},
    {"begin with the checkpoint", ""},
    {"mport into a", ""},
    {"mport it into a", ""},
    {"export to an empty place", ""},
    {"the dialect: deltawire inspect", ""},
    {"lists what it has", ""},
    {"nothing of it was committed", "copy the version again from where it came, then repeat"},
    {"name one of them", "deltawire inspect FOLDER lists its versions"},
    {"signing needs the private one", ""},
    {"DELTAWIRE_KERNELS", "set DELTAWIRE_KERNELS to what deltawire kernels lists, or unset it"},
    {"holds a line end", "set it without the line end: DELTAWIRE_ENGINE_API_KEY=$(cat FILE)"},
    {"cannot write to stdout", "check where the output goes: the work itself may be done"},
    {"set accept_loss",
     "restore STORE, or publish to an empty one; to give up what is lost: publish --accept-loss"},
    {"restore the store, or import", ""},
    {"set schema_change",
     "publish another model to another STORE; if this one's tensors are to change: "
     "--schema-change"},
    {"is neither empty nor a store", ""},
    {"in the safetensors format",
     "model.save_pretrained(FOLDER) of transformers writes it; or safetensors.torch.save_file()"},
    {"a store, not a checkpoint", "deltawire publish CKPT STORE: the store comes last"},
    {"Address already in use", "choose another port; 0 takes one that is free"},
    {"Cannot assign requested address", "use an address of this machine: ip addr lists them"},
    {"is the store mounted?", "mount it and repeat; to begin a new run there: --new-run"},

    // Ships and mirrors.
    {"its secret is another one",
     "--secret-file FILE: the file that publish has as --ship-secret-file"},
    {"only the publisher writes", "publish to the publisher's own STORE; ship:// is for replicas"},
    {"have different histories", "find out who rewrote SOURCE; then mirror it into an empty DEST"},
    {"no carrier ", "name one of these: --carrier, or publish --ship-carrier"},

    // Shards.
    {"would be broadcast instead", ""},
    {"plan-shards shows who", ""},
    {"shard layout: ", "make the layout again: docs/carriers.md says what is in one"},

    // Versions in slime's layout.
    {"no base was given to begin with", "give the checkpoint that version 0 is: --base CKPT"},
    {"which is written last", "ls SOURCE shows what is there; wait for the trainer, then repeat"},

    // Files and folders of the caller.
    {"no .safetensors file", "give a .safetensors file, or a folder that holds one"},
    {"no such folder to watch", "make the folder first: mkdir -p FOLDER"},
    {"no such file or folder", "check the path: ls -l PATH"},
    {"/parts/", "deltawire fsck STORE lists all damage", Code::kNotFound},
    {"No such file or directory", "check the path: ls -l PATH"},
    {"no delta.index.json", "copy the whole folder of the delta again"},
    {"without delta.index.json", "copy the whole folder of the delta again"},
    {"to say which belong together", "give one of the files, or save the index beside them"},
    {"is this a safetensors file?", "give a .safetensors file, or a folder that holds one"},
    {"neither a replica's folder nor a store",
     "give the STORE that was published to, or the LOCAL folder of a replica"},
    {"there is no folder", "make the folder first: mkdir -p FOLDER"},
    {"file named by the index is missing", "copy the missing file, or save the checkpoint again"},
    {"a delta, not a checkpoint",
     "deltawire apply DELTA CHECKPOINT -o OUT makes a checkpoint of it"},
    {"not a deltawire delta", "deltawire diff OLD NEW -o DELTA makes a delta"},
    {"no tensor ", "deltawire inspect FILE lists its tensors"},
    {"no change of a tensor", "deltawire inspect DELTA lists the tensors that changed"},
    {"header", "copy the file again, or save it again", Code::kCorruption},
    {"data_offsets", "copy the file again, or save it again", Code::kCorruption},
    {"changed while it was read", "repeat it when nobody writes to the file"},
    {"No space left on device", "make room on that disk, then repeat"},
    {"of disk: ", "make room on that disk, then repeat"},
    {"Read-only file system", "use a folder that can be written to; only a STORE may be read-only"},
    {"Permission denied", "check who may read and write there: ls -ld PATH"},

    // Replicas.
    {"in use by", "wait for that process, or end it; then repeat"},
    {"belongs to run", "use another folder, or remove this one if its run is over"},
    {"the run asked for is", "check --run and STORE: deltawire log STORE shows the run"},
    {"the store has lost",
     "bring the versions back; or go back: deltawire pull STORE LOCAL --version N"},
    {"holds no run any more", "mount or restore the store; the replica keeps what it holds"},
    {"holds no run", "check the path; if it is right, publish first: deltawire publish CKPT STORE"},
    {"another history",
     "find out who rewrote the chain; to go over to it: deltawire pull STORE LOCAL --version N"},
    {"none below version", "wait for that version, or ask for less: --at-least N"},
    {"there is no version", "deltawire log STORE shows the versions"},
    {"is not pinned", "deltawire log STORE shows the pins"},
    {"then the files were changed",
     "deltawire pull STORE LOCAL fetches them again; find out who writes there"},
    {"needs a folder of its own", "use the same options as before, or another LOCAL"},
    {"the command ended with status", "read what the command printed above, then repeat"},
    {"how the command ended is not known", "find out who killed the command, then repeat"},
    {"the command did not end in", "give it longer: --notify-timeout SECONDS; or mend the command"},
    {"could not be paused", "look at the engine, then repeat: no file was changed"},

    {": POST /", "read the engine's answer above: is it the right engine and URL?",
     Code::kInvalidArgument},
    {": POST /", "look at the engine, then repeat", Code::kUnavailable},

    // Stores.
    {"was published by another", "publish again: it goes on from the new head"},
    {"may or may not be committed", "publish again: it looks first"},
    {"cannot put an object only if it is absent",
     "--single-writer, if there is only one publisher"},
    {"no path leads to version", "deltawire fsck STORE says what is missing or damaged"},
    {"signature:", "deltawire fsck STORE --trust KEY.pub lists all such records; who wrote them?"},
    {"no S3 credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"},
    {"access denied", "the keys need s3:GetObject and s3:ListBucket; to publish also s3:PutObject"},
    {"no such bucket", "make the bucket, or check its name and --endpoint"},
    {"certificate is not trusted", "--ca-file FILE adds the server's authority"},

    // Keys.
    {"a key is never overwritten", "use another name, or remove both files of the old key"},
    {"not a public key", "deltawire keygen -o NAME writes NAME and NAME.pub; readers get NAME.pub"},
};

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Of import and export: what they read or write is not a chain alone, and no replica.
std::optional<std::string> bridge_step(Code code, std::string_view verb) {
  struct Step {
    Code code;
    std::string_view import, exporting;
  };
  static constexpr Step kSteps[] = {
      {Code::kNotFound, "deltawire inspect SRC lists their versions",
       "deltawire log STORE lists the chain's versions"},
      {Code::kCorruption, "of SRC: copy the version again; of STORE: deltawire fsck STORE lists it",
       "of STORE: deltawire fsck STORE lists it; of DST: export to an empty place"},
      {Code::kBaseMismatch, "import into an empty store, with the --base that the run began with",
       "export to an empty place"},
      {Code::kUnavailable, "repeat it; --follow does so by itself",
       "repeat it; --follow does so by itself"},
      {Code::kOutOfMemory, "repeat it with less: --memory, --threads",
       "repeat it with less: --memory, --threads"},
  };
  if (!is_one_of(verb, {"import", "export"})) return {};
  for (const Step& step : kSteps) {
    if (step.code == code) return std::string(verb == "import" ? step.import : step.exporting);
  }
  return {};
}

// What helps with all other failures of this kind.
std::string usual_step(Code code, std::string_view verb) {
  if (const auto step = bridge_step(code, verb)) return *step;
  const bool on_files = is_one_of(verb, {"diff", "apply", "verify", "inspect"});
  switch (code) {
    case Code::kOk:
      return {};
    case Code::kInvalidArgument:
      return "deltawire " + std::string(verb) + (verb.empty() ? "" : " ") +
             "--help shows what it takes, with examples";
    case Code::kUnsupported:
      return "use a newer deltawire, or install what the message names";
    case Code::kNotFound:
      return on_files ? "check the path: ls -l PATH" : "deltawire log STORE shows what is there";
    case Code::kConflict:
      return "see who was first, then repeat";
    case Code::kCorruption:
      if (verb == "plan-shards") return "mend the layout: docs/carriers.md says what is in one";
      return on_files ? "copy the file again from where it came"
                      : "deltawire fsck STORE lists all damage";
    case Code::kBaseMismatch:
      return on_files ? "apply it to the checkpoint that it was made from: deltawire inspect DELTA"
                      : "deltawire pull STORE LOCAL, without --no-repair, repairs a replica";
    case Code::kIo:
      return "remove the cause, then repeat";
    case Code::kUnavailable:
      return "repeat it; follow and publish --watch do so by themselves";
    case Code::kOutOfMemory:
      return "repeat it with less: --memory-limit, --threads";
    case Code::kDevice:
      return "nvidia-smi and dmesg say more about the GPU";
    case Code::kCancelled:
      return "repeat it when you like";
    case Code::kInternal:
      return "this is a bug: report it with the command and this message";
  }
  return {};
}

}  // namespace

std::string next_step(const Status& status, std::string_view verb) {
  for (const Known& known : kKnown) {
    if (known.code != Code::kOk && known.code != status.code()) continue;
    if (status.message().find(known.words) != std::string::npos) return std::string(known.next);
  }
  return usual_step(status.code(), verb);
}

}  // namespace deltawire::cli
