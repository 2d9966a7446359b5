// Versions over MPI, from process 0 to the others: mpirun -n 4 mpi_ship --gtest_filter=...
// mpi_test.py runs these, and reads what they say.
#include <signal.h>
#include <unistd.h>

#include "deltawire/carrier_mpi.h"
#include "ship/fleet.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr uint64_t kVersions = 5;
// Version 0 is whole, and so is a dense one; the others are deltas.
double density_of(uint64_t version) { return version == 3 ? 1.0 : 0.02; }

// The model as it is at a version: all processes know.
Model model_at(uint64_t version) {
  Model model = Model::make(40);
  for (uint64_t i = 1; i <= version; ++i) model.step(density_of(i));
  return model;
}

std::unique_ptr<Carrier> begin_job() {
  auto job = make_mpi_carrier({});
  EXPECT_TRUE(job.ok()) << job.status().to_string();
  const Status status = add_mpi_backend({});
  EXPECT_TRUE(status.ok()) << status.to_string();
  return job.ok() ? std::move(*job) : nullptr;
}

// A text of process 0 for all.
std::string told(Carrier& job, std::string text) {
  text.resize(1000, '\0');
  const Status status =
      job.broadcast(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}, kPatience);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return text.c_str();
}

ShipOptions over_mpi() {
  ShipOptions options = Trainer::quick();
  options.backend = "mpi";
  return options;
}

JoinOptions joining_as(const std::string& address, const Carrier& job) {
  JoinOptions options = joining(address);
  options.name = "process-" + std::to_string(job.rank());
  return options;
}

TEST(MpiShip, ReplicasHoldWhatAFolderHolds) {
  const auto job = begin_job();
  ASSERT_TRUE(job);
  if (job->rank() == 0) {
    const TempFolder folder;
    const std::string path = (folder.path() / "chain").string();
    const auto disk = open_store(path, {});
    ASSERT_TRUE(disk.ok());
    Trainer trainer(over_mpi(), {}, *disk);
    told(*job, trainer.shipper->address());
    ASSERT_TRUE(trainer.shipper->wait_for(job->size() - 1, kPatience).ok());
    for (uint64_t version = 0; version < kVersions; ++version) {
      const ShipReport report = trainer.step(density_of(version));
      EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
      EXPECT_EQ(report.carrier, "mpi");
      EXPECT_EQ(report.bytes, Chain::open(*disk)->version(version)->manifest.part_bytes());
    }
    told(*job, path);
    told(*job, Chain::open(*disk)->version(kVersions - 1)->digest.hex());
    told(*job, "");  // all have read the folder
    return;
  }
  FollowingReplica replica(joining_as(told(*job, ""), *job), Model::make(40));
  ASSERT_TRUE(replica.wait_for_version(kVersions - 1)) << replica.error();
  EXPECT_TRUE(replica.memory.is(model_at(kVersions - 1)));
  const auto disk = open_store(told(*job, ""), {});
  ASSERT_TRUE(disk.ok());
  Memory pulled(Model::make(40));
  auto by_disk = TensorReplica::open(*disk, pulled.tensors, {});
  ASSERT_TRUE(by_disk.ok()) << by_disk.status().to_string();
  const auto report = by_disk->pull();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(pulled.is(model_at(kVersions - 1)));
  EXPECT_EQ(replica.pulls().back().run, report->run);
  EXPECT_EQ(told(*job, ""), Chain::open(*disk)->version(kVersions - 1)->digest.hex());
  std::fprintf(stderr, "process %u holds version %zu\n", job->rank(), size_t{kVersions - 1});
  told(*job, "");
}

// Process 2 dies after version 1. The others get all versions; the report names it.
TEST(MpiShip, OneIsKilled) {
  const auto job = begin_job();
  ASSERT_TRUE(job);
  if (job->rank() == 0) {
    Trainer trainer(over_mpi());
    told(*job, trainer.shipper->address());
    ASSERT_TRUE(trainer.shipper->wait_for(job->size() - 1, kPatience).ok());
    for (uint64_t version = 0; version < kVersions; ++version) {
      const ShipReport report = trainer.step(density_of(version));
      size_t holding = 0;
      for (const Shipped& one : report.replicas) holding += one.version == version ? 1 : 0;
      EXPECT_GE(holding, job->size() - 2) << "version " << version;
      for (const std::string& warning : report.warnings) {
        std::fprintf(stderr, "warning: %s\n", warning.c_str());
      }
      if (version == 1) ::sleep(1);
    }
    std::fprintf(stderr, "the trainer ends\n");
    ::sleep(1);
    std::fflush(nullptr);
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);  // MPI cannot end: one of its ranks is gone
  }
  FollowingReplica replica(joining_as(told(*job, ""), *job), Model::make(40));
  if (job->rank() == 2) {
    replica.wait_for_version(1);
    ::raise(SIGKILL);
  }
  ASSERT_TRUE(replica.wait_for_version(kVersions - 1)) << replica.error();
  EXPECT_TRUE(replica.memory.is(model_at(kVersions - 1)));
  std::fprintf(stderr, "process %u holds version %zu\n", job->rank(), size_t{kVersions - 1});
  std::fflush(nullptr);
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace
}  // namespace deltawire::testing
