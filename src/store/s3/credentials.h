// Where the keys come from, and how they are kept fresh.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <string>

#include "deltawire/status.h"
#include "store/s3/providers.h"

namespace deltawire::s3 {

// Asks in the order that AWS's tools have: environment, web identity, shared credentials file,
// configuration file, container, instance metadata. Who had keys is asked again before they end,
// when the file they stand in has changed, and when the server says that they are over; nobody else
// is, for that would be another identity. Thread-safe. No message holds a key.
class CredentialsSource {
 public:
  // InvalidArgument: nobody has keys; the message says why of each. With a profile's name only
  // files are asked.
  static Result<std::unique_ptr<CredentialsSource>> find(const std::string& region,
                                                         const std::string& ca_file,
                                                         const std::string& profile = {});

  // A failure only when they are over and no others are to be had: until then what is known stays.
  Result<Credentials> current();
  // The last ones, whatever their age; asks nobody.
  Credentials known();
  // The server said that `used` are over. True: there are others now.
  bool renew(const Credentials& used);

 private:
  CredentialsSource(const std::string& region, const std::string& ca_file,
                    const std::string& profile);
  Status ask_again();
  bool file_has_changed() const;
  void keep(Keys keys);

  HttpClient http_;
  const Asking asking_;
  const Provider* provider_ = nullptr;
  std::mutex mutex_;
  Keys keys_;
  struct stat seen_ = {};         // of keys_.file
  int64_t not_before_ = 0;        // seconds since 1970: so soon nobody is asked again
  int64_t renew_not_before_ = 0;  // the same of renew()
};

// AWS_REGION, AWS_DEFAULT_REGION, then "us-east-1".
std::string default_region();

}  // namespace deltawire::s3
