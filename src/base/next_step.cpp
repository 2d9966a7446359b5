#include "base/next_step.h"

#include <utility>

namespace deltawire {
namespace {

constexpr NextStep kSteps[] = {
    // Messages that say it themselves.
    {"see deltawire ", ""},
    {"choose another name", ""},
    {"choose an empty destination", ""},
    {"choose a name that", ""},
    {"give ", ""},
    {"move it away", ""},
    {"chmod 600", ""},
    {"publish again", ""},
    {"put the key into", ""},
    {"such as ", ""},
    {"; write ", ""},
    {"; try ", ""},
    {"a clone: make build", ""},
    {"pip install ", ""},
    {"readers need the .pub", ""},
    {"instead: ", ""},
    {"the checkpoint that the run began with?", ""},
    {"begin with a base that has", ""},
    {"begin with the checkpoint", ""},
    {"begin with version", ""},
    {"import from version", ""},
    {"a source that has moved", ""},
    {"mport into a", ""},
    {"mport it into a", ""},
    {"export to an empty destination", ""},
    {"store an anchor there first", ""},
    {"the dialect: deltawire inspect", ""},
    {"lists what it has", ""},
    {"nothing of it was committed", "copy the version again from where it came, then repeat"},
    {"name one of them", "deltawire inspect FOLDER lists its versions"},
    {"signing needs the private one", ""},
    {"DELTAWIRE_KERNELS",
     "set DELTAWIRE_KERNELS to an instruction set of this machine (scalar always works), or unset "
     "it"},
    {"holds a line end", "set it without the line end: DELTAWIRE_ENGINE_API_KEY=$(cat FILE)"},
    {"cannot write to stdout", "check where the output goes: the work itself may be done"},
    {"set accept_loss", "restore the store, or publish to an empty one; or accept the loss"},
    {"restore the store, or import", ""},
    {"set schema_change",
     "publish another model to another store; or allow this one's tensors to change"},
    {"is neither empty nor a store", ""},
    {"is the store mounted?", "mount it and repeat; or begin a new run there"},

    // Mirrors.
    {"have different histories", "find out who rewrote SOURCE; then mirror it into an empty DEST"},
    {"differs from the source's record", "mirror once with verification, which copies it again"},

    // Versions in the layouts of other projects.
    {"needs the checkpoint that the first one", "give that checkpoint as the base"},
    {"is missing or not complete, though",
     "put it back; or import missing versions as unchanged, if the trainer writes no file for "
     "them; or begin a new store with a later version that is whole, or with a base"},
    {"which is written last", "ls SOURCE shows what is there; wait for the trainer, then repeat"},

    // Files and folders of the caller.
    {"is a store, not a folder", "the store comes first, then the folder of the replica"},
    {"is a replica's folder, not",
     "give the store that was published to; the folder of a replica comes second"},
    {"is a store, not a delta",
     "deltawire pull STORE LOCAL brings a checkpoint to the newest version"},
    {"is a store, not a checkpoint",
     "deltawire log STORE lists its versions, deltawire pull STORE LOCAL makes a checkpoint of "
     "one; to publish, the checkpoint comes first, then the store"},
    {"as torch.save writes it",
     "save it as safetensors: model.save_pretrained(FOLDER) of transformers, or "
     "safetensors.torch.save_file()"},
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
    {"No space left on device", "free space on that disk, then repeat"},
    {"of disk space: ", "free space on that disk, then repeat"},
    {"Read-only file system", "use a folder that can be written to; only a STORE may be read-only"},
    {"Permission denied", "check who may read and write there: ls -ld PATH"},
    {"Address already in use",
     "ss -ltnp shows which process has the port; end it, or choose another port"},
    {"Cannot assign requested address", "use an address of this machine: ip addr lists them"},

    // Replicas.
    {"no such bucket", "make the bucket, or check its name and the endpoint"},
    {"in use by", "wait for that process, or end it; then repeat"},
    {"belongs to run", "use another folder, or remove this one if its run is over"},
    {"but the requested run is", "check the run and the STORE: deltawire log STORE shows the run"},
    {"the store has lost", "bring the versions back; or pull an older version by its number"},
    {"holds no run any more", "mount or restore the store; the replica keeps what it holds"},
    {"holds no run", "check the path; if it is right, publish first"},
    {"another history",
     "find out who rewrote the chain; to switch to it, pull a version by its number"},
    {"but the oldest accepted version is", "wait for that version, or ask for less"},
    {"there is no version", "deltawire log STORE shows the versions"},
    {"there is no such replica", "deltawire status STORE lists the replicas"},
    {"is not gone; its last heartbeat was", "end it first, or remove its heartbeat by force"},
    {"is not pinned", "deltawire log STORE shows the pins"},
    {"then the files were changed",
     "deltawire pull STORE LOCAL fetches them again; find out who writes there"},
    {"to change that, use a new folder", "use the same options as before, or another LOCAL"},
    {"the command ended with status", "read what the command printed above, then repeat"},
    {"the exit status of the command is unknown", "find out who killed the command, then repeat"},
    {"the command did not finish within", "raise the time limit, or fix the command"},
    {"could not be paused", "look at the engine, then repeat: no file was changed"},

    {": POST /", "read the engine's answer above: is it the right engine and URL?",
     Code::kInvalidArgument},
    {": POST /", "look at the engine, then repeat", Code::kUnavailable},

    // Stores.
    {"was published by another", "publish again: it goes on from the new head"},
    {"may or may not be committed", "publish again: it first checks whether the version exists"},
    {"cannot put an object only if it is absent",
     "if there is certainly only one writer, open it as the single writer"},
    {"no path leads to version", "deltawire fsck STORE says what is missing or damaged"},
    {"signature:",
     "if the publisher's key was changed, trust the new one too; otherwise find out who wrote it: "
     "deltawire fsck STORE lists all such records, given the trusted keys"},
    {"no S3 credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"},
    {"access denied", "the keys need s3:GetObject and s3:ListBucket; to publish also s3:PutObject"},
    {"does not accept the token", "give the bearer token that the server was started with"},
    {"is a file; expected a folder", "name a folder"},
    {"certificate is not trusted", "trust the certificate of the server's authority"},
    {"objects of this store have no times",
     "return `modified` from stat() and list() of the store, or use no grace period"},

    // Keys.
    {"but the new record would be unsigned",
     "sign with that key; or stop signing, which stops every replica that trusts it"},
    {"is not signed, but the new record would be",
     "find out who wrote it; to sign the chain from now on, change its key"},
    {"but the new record would be signed with",
     "change the key once every reader trusts the new one, or trust both"},
    {"must check signatures",
     "trust the chain's keys; or, if it is no longer signed, remove signed versions too"},
    {"a key is never overwritten", "use another name, or remove both files of the old key"},
    {"not a public key", "deltawire keygen -o NAME writes NAME and NAME.pub; readers get NAME.pub"},
};

}  // namespace

const NextStep* find_next_step(const Status& status) {
  for (const NextStep& step : kSteps) {
    if (step.code != Code::kOk && step.code != status.code()) continue;
    if (status.message().find(step.words) != std::string::npos) return &step;
  }
  return nullptr;
}

std::string_view usual_next_step(Code code) {
  constexpr std::pair<Code, std::string_view> kUsual[] = {
      {Code::kUnsupported, "use a newer deltawire, or install what the message names"},
      {Code::kNotFound, "check the name; deltawire log STORE shows what a store holds"},
      {Code::kConflict, "check who else wrote there, then repeat"},
      {Code::kCorruption,
       "copy a damaged file again; deltawire fsck STORE lists all damage of a chain"},
      {Code::kBaseMismatch,
       "use the checkpoint that the delta was made from; the next pull repairs a replica, unless "
       "repairs are off"},
      {Code::kIo, "remove the cause, then repeat"},
      {Code::kUnavailable, "repeat it"},
      {Code::kOutOfMemory, "repeat it with a lower memory limit, or fewer threads"},
      {Code::kDevice, "nvidia-smi and dmesg say more about the GPU"},
      {Code::kCancelled, "repeat it"},
      {Code::kInternal, "this is a bug: report it with the call and this message"}};
  for (const auto& [kind, next] : kUsual) {
    if (kind == code) return next;
  }
  return "";
}

std::string next_step(const Status& status) {
  const NextStep* const step = find_next_step(status);
  return std::string(step != nullptr ? step->next : usual_next_step(status.code()));
}

}  // namespace deltawire
