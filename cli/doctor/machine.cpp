// Checks of this machine: instruction sets, GPUs, memory, disks, limits and clock.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "cli/doctor/checks.h"
#include "cli/options.h"
#include "cli/table.h"
#include "deltawire/replica.h"
#include "kernels/kernels.h"
#ifdef DELTAWIRE_HAVE_CUDA
#include "kernels/cuda/memory.h"
#endif

namespace deltawire::cli::doctor {
namespace {

constexpr uint64_t kFewestFiles = 4096;
constexpr uint64_t kSmallestShm = 1'000'000'000;
constexpr int64_t kOldestClock = 1'767'225'600;  // 2026-01-01: a clock before that is wrong
// A spool keeps up to 32 deltas; one of a usual step of RL training is under 0.6 % of the model.
constexpr double kSpoolShare = 32 * 0.006;

void check_kernels(Checks* checks) {
  std::vector<std::string> names;
  for (const Kernels* target : available_kernels()) names.emplace_back(target->name);
  checks->ok("kernels",
             fmt::format("{} in use; available: {}", kernels().name, fmt::join(names, ", ")),
             {{"chosen", kernels().name}, {"available", names}});
}

// The number at the start of a kernel file; 0 if there is none.
uint64_t number_in(const char* path, const char* after = "") {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (*after != '\0' && word != after) continue;
    if (*after != '\0' && !(file >> word)) break;
    uint64_t number = 0;
    std::from_chars(word.data(), word.data() + word.size(), number);
    return number;
  }
  return 0;
}

void check_cores(Checks* checks) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::string text = plural(cores, "core");
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && period > 0 && quota / period < cores) {
    text += fmt::format(", of which the container may use {:.1f}", quota / period);
  }
  checks->ok("cores", text, {{"cores", cores}});
}

#ifdef DELTAWIRE_HAVE_CUDA
// Whether kernels compiled for these architectures ("90-real 120") run on a device of that
// capability.
bool is_compiled_for(int capability) {
  std::istringstream words(DELTAWIRE_CUDA_ARCHITECTURES);
  for (std::string word; words >> word;) {
    int compiled = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), compiled);
    if (error != std::errc()) return true;  // "native": of the machine that compiled it
    const bool portable = !word.ends_with("-real");
    if (compiled <= capability && (portable || compiled / 10 == capability / 10)) return true;
  }
  return false;
}

void check_gpu(Checks* checks, int device) {
  const cuda::UseDevice use(device);
  const std::string what = fmt::format("GPU {}", device);
  const Result<cuda::DeviceInfo> info = cuda::device_info();
  if (!info.ok()) return checks->fail(what, info.status());
  const auto version = [](int number) {
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
  };
  const std::string text = fmt::format(
      "{}, {} free of {}, capability {}.{}, driver for CUDA {}, runtime {}; compiled for {}",
      info->name, human_bytes(double(info->free_bytes)), human_bytes(double(info->total_bytes)),
      info->capability / 10, info->capability % 10, version(info->driver), version(info->runtime),
      DELTAWIRE_CUDA_ARCHITECTURES);
  const Json values = {{"name", info->name},
                       {"total_bytes", info->total_bytes},
                       {"free_bytes", info->free_bytes},
                       {"capability", info->capability},
                       {"driver", info->driver},
                       {"runtime", info->runtime}};
  checks->judge(is_compiled_for(info->capability), what, text,
                fmt::format("build with CUDAARCHS={} (docs/building.md), or work on the CPU",
                            info->capability),
                values);
}
#endif

void check_cuda(Checks* checks) {
  const bool has_driver = ::access("/proc/driver/nvidia/version", F_OK) == 0;
#ifdef DELTAWIRE_HAVE_CUDA
  const Status usable = cuda::check_device();
  if (!usable.ok() && !has_driver) return checks->ok("cuda", "no NVIDIA driver: the CPU works");
  if (!usable.ok()) {
    return checks->warn("cuda", usable.message(),
                        "look at nvidia-smi; update the driver, or give the container its GPUs "
                        "(--gpus all)");
  }
  const Result<int> count = cuda::num_devices();
  if (!count.ok()) return checks->fail("cuda", count.status());
  for (int device = 0; device < *count; ++device) check_gpu(checks, device);
#else
  if (!has_driver) return checks->ok("cuda", "not compiled in; no NVIDIA driver: the CPU works");
  checks->warn("cuda", "not compiled in, though there is an NVIDIA driver",
               "for weights on the GPU install a build with CUDA: docs/building.md");
#endif
}

void check_memory(Checks* checks, uint64_t model) {
  uint64_t total = 1024 * number_in("/proc/meminfo", "MemTotal:");
  uint64_t free = 1024 * number_in("/proc/meminfo", "MemAvailable:");
  if (const uint64_t most = number_in("/sys/fs/cgroup/memory.max"); most != 0 && most < total) {
    total = most;
    const uint64_t used = number_in("/sys/fs/cgroup/memory.current");
    const uint64_t cache = number_in("/sys/fs/cgroup/memory.stat", "inactive_file");
    free = std::min(free, most - std::min(most, used - std::min(used, cache)));
  }
  std::string text =
      fmt::format("{} free of {}", human_bytes(double(free)), human_bytes(double(total)));
  const Json values = {{"free_bytes", free}, {"total_bytes", total}};
  if (model == 0) return checks->ok("memory", text, values);
  text += fmt::format("; a publisher's snapshot takes {}", human_bytes(double(model)));
  if (model <= free) return checks->ok("memory", text, values);
  checks->warn("memory", text + ": it does not fit",
               "keep the snapshot on disk: dw.Publisher(snapshot=FOLDER), deltawire publish",
               values);
}

struct Disk {
  std::string what;
  std::filesystem::path folder;
  uint64_t need = 0;
  std::string why;   // "a replica takes 16 GB"
  std::string next;  // where it does not fit
  bool must_fit = false;
};

void check_disk(Checks* checks, const Disk& disk) {
  // A path that does not exist yet will be on the disk of its parent folder.
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(disk.folder, error).lexically_normal();
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(there, error);
  const std::string place = disk.folder.string();
  if (error) {
    return checks->warn(disk.what, place + ": " + error.message(), "check the path: ls -ld PATH");
  }
  if (!std::filesystem::is_directory(there, error)) {
    return checks->fail(disk.what, io_error(there.string() + ": is a file; expected a folder"));
  }
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    const Status denied = system_error(there, "cannot write");
    if (disk.must_fit) return checks->fail(disk.what, denied);
    return checks->warn(disk.what, denied.message(), "check who may write there: ls -ld PATH");
  }
  std::string text = fmt::format("{}: {} free of {}", place, human_bytes(double(space.available)),
                                 human_bytes(double(space.capacity)));
  if (!disk.why.empty()) text += "; " + disk.why;
  const Json values = {{"free_bytes", space.available},
                       {"total_bytes", space.capacity},
                       {"needed_bytes", disk.need}};
  if (disk.need <= space.available) return checks->ok(disk.what, text, values);
  text += disk.why.empty() ? "" : ": it does not fit";
  if (disk.must_fit) return checks->fail(disk.what, io_error(text), disk.next);
  checks->warn(disk.what, text, disk.next, values);
}

void check_local(Checks* checks, const Needs& needs) {
  const Result<ReplicaState> held = read_replica_state(needs.local);
  const auto spool = uint64_t(double(needs.model_bytes) * kSpoolShare);
  Disk disk{"LOCAL", needs.local, spool, "", "free space there, or name another disk", true};
  if (needs.model_bytes != 0) {
    disk.why = fmt::format("an engine's spool takes up to {}", human_bytes(double(spool)));
    if (!held.ok()) {
      disk.need += needs.model_bytes;
      disk.why =
          fmt::format("a replica takes {}, {}", human_bytes(double(needs.model_bytes)), disk.why);
    }
  }
  if (held.ok())
    disk.why += fmt::format("{}version {} is there", disk.why.empty() ? "" : "; ", held->version);
  check_disk(checks, disk);
}

void check_disks(Checks* checks, const Needs& needs) {
  const std::string model = human_bytes(double(needs.model_bytes));
  if (!needs.local.empty()) check_local(checks, needs);
  if (const auto snapshots = cache_folder("snapshots", "--snapshot");
      needs.model_bytes != 0 && snapshots.ok()) {
    check_disk(checks, {"snapshots", *snapshots, needs.model_bytes,
                        "deltawire publish keeps a snapshot of " + model + " there",
                        "publish with --snapshot FOLDER, on another disk"});
  }
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) {
    checks->warn("TMPDIR", "not a folder: " + error.message(), "make that folder, or unset TMPDIR");
  } else {
    check_disk(checks, {"TMPDIR", temporary, 2 * needs.model_bytes,
                        needs.model_bytes == 0 ? "" : "compact takes up to twice " + model,
                        "set TMPDIR, or say --work FOLDER"});
  }
  if (std::filesystem::exists("/dev/shm", error)) {
    check_disk(checks, {"/dev/shm", "/dev/shm", kSmallestShm, "",
                        "engines with several workers need more: start the container with "
                        "--shm-size or --ipc=host"});
  }
}

void check_files(Checks* checks) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const Json values = {{"soft", files.rlim_cur}, {"hard", files.rlim_max}};
  if (files.rlim_max == RLIM_INFINITY) return checks->ok("open files", "no limit", values);
  const std::string text = "at most " + human_count(files.rlim_max);
  const bool enough = files.rlim_max >= kFewestFiles;
  checks->judge(enough, "open files",
                text + (enough ? "" : "; a server has one open for each connection"),
                "raise it: ulimit -Hn 65536, LimitNOFILE= of systemd", values);
}

void check_clock(Checks* checks) {
  const int64_t now = unix_seconds();
  timex told{};
  const bool is_synchronised = ::adjtimex(&told) >= 0 && (told.status & STA_UNSYNC) == 0;
  const std::string text =
      utc_text(now) + (is_synchronised ? ", synchronised" : ", not known to be synchronised");
  const Json values = {{"time", now}, {"synchronised", is_synchronised}};
  checks->judge(now >= kOldestClock && is_synchronised, "clock", text,
                "set it: timedatectl set-ntp true, or chronyc makestep", values);
}

}  // namespace

void check_machine(Checks* checks, const Needs& needs) {
  check_kernels(checks);
  check_cores(checks);
  check_cuda(checks);
  check_memory(checks, needs.model_bytes);
  check_disks(checks, needs);
  check_files(checks);
  check_clock(checks);
}

}  // namespace deltawire::cli::doctor
