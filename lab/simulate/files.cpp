#include "lab/simulate/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/file.h"
#include "base/folder.h"
#include "base/guard.h"
#include "base/thread_pool.h"
#include "base/waves.h"
#include "delta/delta_writer.h"
#include "tensor/safetensors.h"
#include "tensor/sharded_index.h"

namespace deltawire::cli {
namespace fs = std::filesystem;
namespace {

struct Shard {
  std::string name;  // of its file; empty when there is only one
  std::span<const SimulatedTensor> tensors;
  std::string header;
  std::vector<uint64_t> offsets;  // of the tensors, from the start of the file
  uint64_t size_bytes = 0;
};

uint64_t size_of(const SimulatedTensor& tensor) {
  return tensor.num_elements() * (tensor.master ? sizeof(float) : sizeof(uint16_t));
}

uint64_t size_of(std::span<const SimulatedTensor> tensors) {
  uint64_t size = 0;
  for (const SimulatedTensor& tensor : tensors) size += size_of(tensor);
  return size;
}

Status lay_out(Shard* shard) {
  std::vector<TensorSpec> specs;
  for (const SimulatedTensor& tensor : shard->tensors) {
    specs.push_back({tensor.name, tensor.dtype(), tensor.shape});
  }
  DW_ASSIGN_OR_RETURN(shard->header, serialise_safetensors_header(specs, {{"format", "pt"}}));
  shard->size_bytes = shard->header.size();
  for (const SimulatedTensor& tensor : shard->tensors) {
    shard->offsets.push_back(shard->size_bytes);
    shard->size_bytes += size_of(tensor);
  }
  return {};
}

// Shards of about equal size; none is empty.
Result<std::vector<Shard>> cut(std::span<const SimulatedTensor> model, uint64_t num_shards) {
  std::vector<Shard> shards(num_shards);
  const uint64_t total = size_of(model);
  uint64_t done = 0;
  for (size_t i = 0, begin = 0; i < num_shards; ++i) {
    const uint64_t goal = uint64_t(double(total) * double(i + 1) / double(num_shards));
    const size_t last_end = model.size() - (num_shards - 1 - i);  // leaves one for each to come
    size_t end = begin;
    do {
      done += size_of(model[end++]);
    } while (end < last_end && (done < goal || i + 1 == num_shards));
    shards[i].tensors = model.subspan(begin, end - begin);
    if (num_shards > 1) {
      shards[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, num_shards);
    }
    DW_RETURN_IF_ERROR(lay_out(&shards[i]));
    begin = end;
  }
  return shards;
}

class Writer {
 public:
  Writer(const fs::path& folder, const SimulationPlan& plan)
      : folder_(folder), plan_(plan), pool_(plan.threads) {
    report_.num_changed.resize(plan.num_steps);
  }
  ~Writer() {
    files_.clear();
    for (const fs::path& temporary : temporaries_) remove_temporary_folder(temporary);
    std::error_code ignored;
    if (!finished_) {
      for (const fs::path& path : published_) fs::remove_all(path, ignored);
    }
    if (!finished_ && made_folder_) fs::remove(folder_, ignored);  // only if it is empty
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  Result<SimulationReport> run() {
    DW_RETURN_IF_ERROR(prepare());
    DW_ASSIGN_OR_RETURN(const std::vector<Shard> shards, cut(plan_.model, plan_.num_shards));
    for (const Shard& shard : shards) {
      DW_RETURN_IF_ERROR(write_shard(shard));
      report_.size_bytes += shard.size_bytes * report_.paths.size();
    }
    DW_RETURN_IF_ERROR(sharded() ? publish_folders(shards) : publish_files());
    finished_ = true;
    return std::move(report_);
  }

 private:
  bool sharded() const { return plan_.num_shards > 1; }

  Status prepare() {
    if (folder_.empty()) return invalid_argument("the output's name is empty");
    std::error_code error;
    made_folder_ = !fs::exists(folder_, error);
    fs::create_directories(folder_, error);
    if (error || !fs::is_directory(folder_, error)) {
      return invalid_argument(folder_.string() + ": cannot make a folder of this name");
    }
    for (uint64_t version = 0; version <= plan_.num_steps; ++version) {
      const fs::path path =
          folder_ / fmt::format("v{}{}", version, sharded() ? "" : ".safetensors");
      if (!plan_.overwrite && fs::exists(path, error)) {
        return invalid_argument(path.string() + ": already exists; --force overwrites it");
      }
      report_.paths.push_back(path);
      if (!sharded()) {
        DW_ASSIGN_OR_RETURN(fs::path target, prepare_output(path, OutputForm::kFile));
        targets_.push_back(std::move(target));
        continue;
      }
      remove_stale_temporaries(path);
      DW_ASSIGN_OR_RETURN(fs::path temporary, create_temporary_folder(path));
      temporaries_.push_back(std::move(temporary));
    }
    return {};
  }

  Status write_shard(const Shard& shard) {
    files_.clear();
    for (size_t version = 0; version < report_.paths.size(); ++version) {
      const fs::path& shown = report_.paths[version];
      DW_ASSIGN_OR_RETURN(MutableFile file,
                          sharded()
                              ? MutableFile::create(temporaries_[version] / shard.name,
                                                    shard.size_bytes, shown / shard.name)
                              : MutableFile::create(targets_[version], shard.size_bytes, shown));
      std::copy(shard.header.begin(), shard.header.end(), file.bytes().begin());
      files_.push_back(std::move(file));
    }
    const std::vector<size_t> order =
        largest_first(shard.tensors.size(), [&](size_t i) { return size_of(shard.tensors[i]); });
    DW_RETURN_IF_ERROR(
        parallel_try("simulating", &pool_, order.size(), [&](size_t i, unsigned worker) {
          return write_tensor(shard.tensors[order[i]], shard.offsets[order[i]], worker);
        }));
    DW_RETURN_IF_ERROR(report_progress(0, 0));
    if (!sharded()) return {};  // appear together, once all are whole
    for (MutableFile& file : files_) DW_RETURN_IF_ERROR(file.commit(poll_));
    return {};
  }

  Status write_tensor(const SimulatedTensor& tensor, uint64_t offset, unsigned worker) {
    if (tensor.master) {
      return write_versions(MasterSimulation(tensor, plan_.step_size, plan_.seed), offset, worker);
    }
    return write_versions(TensorSimulation(tensor, plan_.step_size, plan_.seed), offset, worker);
  }

  // All versions of one tensor.
  template <typename Simulation>
  Status write_versions(Simulation simulation, uint64_t offset, unsigned worker) {
    for (size_t version = 0; version < files_.size(); ++version) {
      if (version != 0) {
        const std::atomic_ref changed(report_.num_changed[version - 1]);
        changed.fetch_add(simulation.step(), std::memory_order_relaxed);
      }
      const Bytes bytes(reinterpret_cast<const uint8_t*>(simulation.values().data()),
                        simulation.values().size_bytes());
      std::copy(bytes.begin(), bytes.end(), files_[version].bytes().subspan(offset).begin());
      DW_RETURN_IF_ERROR(report_progress(bytes.size(), worker));
    }
    return {};
  }

  // Only the calling thread, worker 0, reports progress; all workers stop when it is cancelled.
  Status report_progress(uint64_t bytes, unsigned worker) {
    const uint64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (worker == 0 && plan_.progress) {
      const uint64_t total = size_of(plan_.model) * report_.paths.size();
      if (!plan_.progress(done, total)) stop_.store(true, std::memory_order_relaxed);
    }
    return stop_.load(std::memory_order_relaxed) ? cancelled("stopped on request") : Status();
  }

  Status publish_files() {
    for (size_t version = 0; version < files_.size(); ++version) {
      DW_RETURN_IF_ERROR(files_[version].commit(poll_));
      published_.push_back(report_.paths[version]);
    }
    return {};
  }

  Status publish_folders(const std::vector<Shard>& shards) {
    std::vector<IndexEntry> index;
    for (const Shard& shard : shards) {
      for (const SimulatedTensor& tensor : shard.tensors)
        index.push_back({tensor.name, shard.name});
    }
    for (size_t version = 0; version < report_.paths.size(); ++version) {
      DW_RETURN_IF_ERROR(write_index(temporaries_[version], index, size_of(plan_.model)));
      std::error_code error;
      if (plan_.overwrite) fs::remove_all(report_.paths[version], error);
      DW_RETURN_IF_ERROR(publish_temporary_folder(temporaries_[version], report_.paths[version]));
      published_.push_back(report_.paths[version]);
    }
    return {};
  }

  const fs::path folder_;
  const SimulationPlan& plan_;
  ThreadPool pool_;
  SimulationReport report_;
  std::vector<MutableFile> files_;     // of the shard in work, by version
  std::vector<fs::path> targets_;      // by version: where the file goes, links followed
  std::vector<fs::path> temporaries_;  // by version, when sharded
  std::vector<fs::path> published_;
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> stop_{false};
  bool made_folder_ = false, finished_ = false;
  const Poll poll_ = [this] { return report_progress(0, 0); };
};

}  // namespace

Result<SimulationReport> write_simulation(const fs::path& folder, const SimulationPlan& plan) {
  return Writer(folder, plan).run();
}

}  // namespace deltawire::cli
