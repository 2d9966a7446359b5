// A small model in several versions, as other projects' files and as a chain.
#pragma once

#include "bridge/bridge.h"
#include "bridge/foreign.h"
#include "checkpoints.h"
#include "deltawire/checkpoint.h"
#include "deltawire/replica.h"
#include "dialect/foreign_model.h"

namespace deltawire::testing {

using Model = std::vector<TestTensor>;  // sorted by name

inline Model small_model() {
  return {make_tensor("head.weight", DType::kBF16, {40, 30}, 1),
          make_tensor("layers.0.weight", DType::kBF16, {64, 65}, 2),
          make_tensor("layers.1.weight", DType::kBF16, {64, 65}, 3),
          make_tensor("norm.weight", DType::kF32, {33}, 4)};
}

// The next step: two of the tensors change, others with each step.
inline Model next_model(Model model, uint64_t step) {
  change(&model[step % model.size()], 0.05, 100 + step);
  change(&model[(step + 1) % model.size()], 0.02, 200 + step);
  return model;
}

// A folder for all files of a test.
class BridgeFolder {
 public:
  BridgeFolder() {
    models_.push_back(small_model());
    for (uint64_t step = 1; step <= 3; ++step) models_.push_back(next_model(models_.back(), step));
    write_checkpoint(base(), models_[0]);
  }

  const Model& model(uint64_t version) const { return models_[version]; }
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  fs::path base() const { return path("base.safetensors"); }
  std::shared_ptr<Store> store(const std::string& name) const {
    return open_store(path(name).string(), StoreOptions()).value();
  }

  // Writes the change from `before` to `after` in the dialect.
  Status write(const Dialect& dialect, uint64_t version, const Model& before, const Model& after,
               const ForeignOptions& options = {}, bool full = false,
               const std::string& source = "source") const {
    Model old, now;
    for (size_t i = 0; i < after.size(); ++i) {
      if (!full && before[i].bytes == after[i].bytes) continue;
      if (!full) old.push_back(before[i]);
      now.push_back(after[i]);
    }
    return write_foreign(dialect, store(source), version, old, now, options, full);
  }
  // Versions 1 ... `last`.
  void write_all(const Dialect& dialect, uint64_t last = 3, const ForeignOptions& options = {},
                 const std::string& source = "source") const {
    for (uint64_t version = 1; version <= last; ++version) {
      must(write(dialect, version, models_[version - 1], models_[version], options, false, source));
    }
  }

  ImportOptions import_options(const std::string& dialect = "slime") const {
    return {
        .dialect = dialect,
        .base = base(),
        .publish = {.snapshot = SnapshotInFolder{path("work"), true}, .limits = {.threads = 2}}};
  }
  ExportOptions export_options(const std::string& dialect = "slime") const {
    return {.dialect = dialect, .work = path("export-work"), .threads = 2};
  }

 private:
  TempFolder folder_;
  std::vector<Model> models_;
};

class BridgeTest : public ::testing::Test {
 protected:
  const BridgeFolder folder;
};

// Imports all versions; returns their number, including the base.
inline Result<size_t> import_all(const BridgeFolder& folder, const ImportOptions& options,
                                 const std::string& source = "source",
                                 const std::string& chain = "chain") {
  DW_ASSIGN_OR_RETURN(Importer importer,
                      Importer::open(folder.store(source), folder.store(chain), options));
  for (size_t count = 0;; ++count) {
    DW_ASSIGN_OR_RETURN(const auto imported, importer.next());
    if (!imported) return count;
  }
}

inline Result<size_t> export_all(const BridgeFolder& folder, const ExportOptions& options,
                                 const std::string& chain = "chain",
                                 const std::string& target = "target") {
  DW_ASSIGN_OR_RETURN(const Chain opened, Chain::open(folder.store(chain)));
  DW_ASSIGN_OR_RETURN(Exporter exporter, Exporter::open(opened, folder.store(target), options));
  for (size_t count = 0;; ++count) {
    DW_ASSIGN_OR_RETURN(const auto exported, exporter.next());
    if (!exported) return count;
  }
}

inline std::optional<uint64_t> head_of(const BridgeFolder& folder,
                                       const std::string& chain = "chain") {
  const Result<Chain> opened = Chain::open(folder.store(chain));
  return opened.ok() ? opened->head().value() : std::nullopt;
}

// Compares a replica of the chain at a version with the model.
inline void expect_version(const BridgeFolder& folder, uint64_t version, const Model& expected,
                           const std::string& chain = "chain") {
  const TempFolder local;
  auto replica =
      must(Replica::open(folder.store(chain), local.path() / "replica", {.heartbeat = false}));
  const auto report = must(replica.pull(version));
  const auto checkpoint = must(Checkpoint::open(report.path));
  ASSERT_EQ(checkpoint.tensors().size(), expected.size());
  for (const TestTensor& tensor : expected) {
    const CheckpointTensor* const held = checkpoint.find(tensor.name);
    ASSERT_NE(held, nullptr) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(held->view.bytes, tensor.bytes))
        << tensor.name << " of version " << version;
  }
}

inline const Dialect& slime() { return *find_dialect("slime"); }

}  // namespace deltawire::testing
