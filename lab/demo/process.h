// Child processes of the demo: the same binary, run as a trainer or a replica would run it.
#pragma once

#include <sys/types.h>
#include <filesystem>
#include <string>
#include <vector>

#include "deltawire/status.h"

namespace deltawire::cli {

// The destructor kills the process and waits for it.
class Process {
 public:
  // Runs `program` with `args`; its output goes to `log`. It is killed when this process ends.
  static Result<Process> start(const std::string& program, const std::vector<std::string>& args,
                               const std::filesystem::path& log);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  void kill(int signal) const;
  bool running();
  // Exit status; 128 + the number of the signal that ended it.
  int wait();

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
  int status_ = -1;  // once it has ended
};

std::string own_program();  // the path of this binary

// Runs to the end; its standard output, or Internal with the log's last line when it fails.
Result<std::string> run_to_end(const std::string& program, const std::vector<std::string>& args,
                               const std::filesystem::path& log);

}  // namespace deltawire::cli
