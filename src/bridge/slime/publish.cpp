#include "bridge/slime/publish.h"

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/guard.h"
#include "bridge/slime/local.h"
#include "bridge/slime/pull.h"
#include "bridge/slime/source.h"
#include "delta/open_checkpoint.h"
#include "format/checkpoint_files.h"
#include "store/directory_store.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

class SlimePublishing {
 public:
  SlimePublishing(const Dialect& dialect, const SlimePublishOptions& options, Checkpoint checkpoint)
      : dialect_(dialect),
        options_(options),
        checkpoint_(std::move(checkpoint)),
        store_(std::make_shared<DirectoryStore>(options.source)),
        pool_(options.threads) {}

  Result<SlimePublishReport> run();

 private:
  Result<SlimePulled> pull(uint64_t version) const;
  Result<uint64_t> newest();
  Status write_full();
  Status write_delta();
  Result<std::vector<bool>> compare(const Checkpoint& before);
  Status write(const ForeignDraft& draft, const Checkpoint* before);
  Status put_sides(uint64_t version);
  Status check() const { return options_.check ? options_.check() : Status(); }

  const Dialect& dialect_;
  const SlimePublishOptions& options_;
  const Checkpoint checkpoint_;
  const std::shared_ptr<Store> store_;
  ThreadPool pool_;
  SlimePublishReport report_;
};

TensorSpec published_spec(const CheckpointTensor& tensor) {
  return {tensor.view.name, tensor.view.dtype, tensor.view.shape};
}

bool same_form(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

Result<SlimePulled> SlimePublishing::pull(uint64_t version) const {
  SlimePullOptions how;
  how.base = options_.base;
  how.dialect = options_.dialect;
  how.threads = options_.threads;
  how.check = options_.check;
  std::error_code error;
  return slime_pull(
      {fs::absolute(options_.local, error), fs::absolute(options_.source, error), version}, how);
}

Result<uint64_t> SlimePublishing::newest() {
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, dialect_.versions(*store_));
  return versions.empty() ? 0 : versions.back();
}

// For each tensor of the checkpoint, whether it differs from `before`, which has it in this form.
Result<std::vector<bool>> SlimePublishing::compare(const Checkpoint& before) {
  std::vector<uint8_t> differs(checkpoint_.tensors().size());
  DW_RETURN_IF_ERROR(
      parallel_try("comparing", &pool_, differs.size(), [&](size_t i, unsigned) -> Status {
        DW_RETURN_IF_ERROR(check());
        const TensorView& now = checkpoint_.tensors()[i].view;
        const CheckpointTensor* const then = before.find(now.name);
        differs[i] = then != nullptr && same_form(now, then->view) &&
                     !std::equal(now.bytes.begin(), now.bytes.end(), then->view.bytes.begin());
        return {};
      }));
  return std::vector<bool>(differs.begin(), differs.end());
}

// Config and tokenizer: their puller removes what a whole version does not have.
Status SlimePublishing::put_sides(uint64_t version) {
  const fs::path folder = checkpoint_.path();
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (is_weights_file(name) || !it->is_regular_file(ignored) || name.starts_with('.')) continue;
    DW_ASSIGN_OR_RETURN(const auto file, MappedFile::open(it->path()));
    DW_RETURN_IF_ERROR(
        store_->put(slime_version_name(version) + "/" + name, MemoryBody(file->bytes()))
            .at("a file beside the weights"));
  }
  return error ? io_error(folder.string() + ": cannot list: " + error.message()) : Status();
}

Status SlimePublishing::write(const ForeignDraft& draft, const Checkpoint* before) {
  DW_ASSIGN_OR_RETURN(const auto writer, dialect_.create(store_, draft, options_.write));
  for (const TensorSpec& spec : draft.tensors) {
    DW_RETURN_IF_ERROR(check());
    const Bytes then = before == nullptr ? Bytes() : before->find(spec.name)->view.bytes;
    DW_RETURN_IF_ERROR(writer->add(spec, then, checkpoint_.find(spec.name)->view.bytes, &pool_));
  }
  DW_RETURN_IF_ERROR(checkpoint_.check_unchanged());
  if (before != nullptr) DW_RETURN_IF_ERROR(before->check_unchanged());
  if (draft.full) DW_RETURN_IF_ERROR(put_sides(draft.version));
  DW_RETURN_IF_ERROR(writer->finish());
  report_.version = draft.version;
  report_.num_changed = draft.tensors.size();
  report_.written = true;
  return {};
}

Status SlimePublishing::write_full() {
  ForeignDraft draft;
  DW_ASSIGN_OR_RETURN(const uint64_t before, newest());
  draft.version = before + 1;
  draft.full = true;
  for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
    draft.tensors.push_back(published_spec(tensor));
  }
  DW_RETURN_IF_ERROR(write(draft, nullptr));
  if (options_.local.empty()) return {};
  DW_ASSIGN_OR_RETURN(SlimePulled pulled, pull(draft.version));
  return pulled.settle();
}

Status SlimePublishing::write_delta() {
  ForeignDraft draft;
  DW_ASSIGN_OR_RETURN(draft.base, newest());
  draft.version = draft.base + 1;
  {
    // Brings it to the version that others see, and keeps others out while it is read.
    DW_ASSIGN_OR_RETURN(SlimePulled held, pull(draft.base));
    DW_RETURN_IF_ERROR(held.settle());
    DW_ASSIGN_OR_RETURN(const Checkpoint before, Checkpoint::open(options_.local));
    DW_ASSIGN_OR_RETURN(const std::vector<bool> differs, compare(before));
    for (size_t i = 0; i < differs.size(); ++i) {
      const CheckpointTensor& tensor = checkpoint_.tensors()[i];
      const CheckpointTensor* const then = before.find(tensor.view.name);
      if (then == nullptr || !same_form(tensor.view, then->view)) {
        draft.added.push_back(tensor.view.name);
      }
      if (differs[i]) draft.tensors.push_back(published_spec(tensor));
    }
    for (const CheckpointTensor& tensor : before.tensors()) {
      if (checkpoint_.find(tensor.view.name) == nullptr) draft.removed.push_back(tensor.view.name);
    }
    report_.version = draft.base;
    if (draft.tensors.empty() && draft.added.empty() && draft.removed.empty()) return {};
    DW_RETURN_IF_ERROR(write(draft, &before));
  }
  DW_ASSIGN_OR_RETURN(SlimePulled pulled, pull(draft.version));
  return pulled.settle();
}

Result<SlimePublishReport> SlimePublishing::run() {
  const auto begin = std::chrono::steady_clock::now();
  report_.num_tensors = checkpoint_.tensors().size();
  DW_RETURN_IF_ERROR(options_.full ? write_full() : write_delta());
  report_.folder = options_.source / slime_version_name(report_.version);
  if (report_.written) {
    DW_ASSIGN_OR_RETURN(const auto written, dialect_.open(*store_, report_.version));
    report_.file_bytes = written->info().file_bytes;
  }
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report_;
}

}  // namespace

Result<SlimePublishReport> slime_publish(const fs::path& checkpoint,
                                         const SlimePublishOptions& options) {
  const Dialect* const dialect = find_dialect(options.dialect);
  if (dialect == nullptr) return unsupported("there is no dialect \"" + options.dialect + "\"");
  if (!options.full && options.local.empty()) {
    return invalid_argument("a delta needs the folder that holds the version before");
  }
  std::error_code error;
  if (!options.local.empty() && fs::equivalent(checkpoint, options.local, error)) {
    return invalid_argument(checkpoint.string() +
                            ": is both what to publish and the local folder, which is to hold the "
                            "version before; name another folder");
  }
  DW_ASSIGN_OR_RETURN(Checkpoint opened, open_checkpoint(checkpoint));
  return SlimePublishing(*dialect, options, std::move(opened)).run();
}

}  // namespace deltawire
