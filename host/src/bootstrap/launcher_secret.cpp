#include "bootstrap/launcher_secret.hpp"

#include "bootstrap/launcher_values.hpp"
#include "util/hex.hpp"
#include "util/interfaces.hpp"
#include "util/random.hpp"
#include "util/sha256.hpp"
#include "util/unique_fd.hpp"

#include <devcomm/host/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

namespace devcomm::host::detail {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw system_error("the file " + path + ", from which jobs of this user on this host take their secret, " + problem +
                     "; or set DEVCOMM_SECRET, the same on all ranks");
}

/// Nothing where there is no file yet.
std::optional<user_key> read_key(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) fail(path, std::string("cannot be read: ") + std::strerror(errno) + "; remove it");
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) fail(path, std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) {
    fail(path, "was made by user " + std::to_string(facts.st_uid) + " and not by this one; have it removed");
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) fail(path, "is open to other users; remove it");
  user_key key;
  if (::read(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
    fail(path, "does not hold a key; remove it");
  }
  return key;
}

/// Whole from the moment it has its name. Somebody else may have been faster.
void make_key(const std::string& path) {
  const std::string draft = path + "." + to_hex(random_value<std::array<std::byte, 8>>());
  const unique_fd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file) fail(path, std::string("cannot be made: ") + std::strerror(errno));
  const auto key = random_value<user_key>();
  const bool written = ::fchmod(file.get(), S_IRUSR | S_IWUSR) == 0 &&
                       ::write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size());
  const bool named = written && ::link(draft.c_str(), path.c_str()) == 0;
  const int problem = errno;
  ::unlink(draft.c_str());
  if (!named && !(written && problem == EEXIST)) fail(path, std::string("cannot be made: ") + std::strerror(problem));
}

/// Whether `key` is as Open MPI's mpirun makes it: "%016lx-%016lx" of random bits. Slurm's number of the job may be in
/// its place, "0107632700000000-0107632700000000", or the numbers of the job that Open MPI's library takes where
/// mpirun has set none, "0000000000009c43-0000000000000001". Both can be guessed.
bool is_random_key(std::string_view key) {
  constexpr std::size_t digits = 16;
  std::array<std::byte, digits / 2> halves[2];
  if (key.size() != 2 * digits + 1 || key[digits] != '-') return false;
  if (!from_hex(key.substr(0, digits), halves[0]) || !from_hex(key.substr(digits + 1), halves[1])) return false;
  const auto zeros = [](std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
  };
  return halves[0] != halves[1] && std::ranges::none_of(halves, [&](std::span<const std::byte> half) {
           return zeros(half.first(digits / 4)) || zeros(half.last(digits / 4));
         });
}

/// What to do against a secret that can be guessed.
std::string cure_for(const std::string& launcher) {
  const bool starts_all = launcher == "mpirun" || launcher == "srun" || launcher == "hydra" || launcher == "pals";
  if (!starts_all) return "Set DEVCOMM_SECRET to the output of \"openssl rand -hex 16\", the same on all ranks";
  return "Before the job is started, export DEVCOMM_SECRET=$(openssl rand -hex 16), which " +
         (launcher == "mpirun" ? std::string("mpirun -x DEVCOMM_SECRET hands") : "the launcher hands") +
         " to all ranks";
}

job_secret first_bytes(const digest& hash) {
  job_secret secret;
  std::memcpy(secret.data(), hash.data(), secret.size());
  return secret;
}

}  // namespace

user_key key_of_user(const std::string& folder) {
  const std::string path = folder + "/devcomm-" + std::to_string(::geteuid()) + ".key";
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (const auto key = read_key(path)) return *key;
    make_key(path);
  }
  fail(path, "is removed as often as it is made; see what removes it");
}

std::string key_folder() {
  struct stat facts {};
  const bool there = ::stat("/dev/shm", &facts) == 0 && S_ISDIR(facts.st_mode) && ::access("/dev/shm", W_OK) == 0;
  return there ? "/dev/shm" : "/tmp";
}

launcher_secret choose_secret(const environment& variables, const launched_process& process,
                              const ask_store& key_in_store, const std::string& folder) {
  if (const auto given = variables("DEVCOMM_SECRET")) {
    launcher_secret chosen;
    if (!from_hex(*given, chosen.secret)) {
      throw invalid_argument("DEVCOMM_SECRET has " + std::to_string(given->size()) +
                             " characters that are not 32 hexadecimal digits; expected the output of, for example, "
                             "\"openssl rand -hex 16\", the same on all ranks");
    }
    return chosen;
  }
  if (process.size == 1) return {random_value<job_secret>(), {}};

  // Of the address the port alone: ranks may name the host differently.
  const endpoint root = parse_endpoint(process.root, "the address of rank 0");
  const std::string text = "devcomm secret\n" + process.job + "\n" + std::to_string(root.port);
  const auto keyed = [&](std::span<const std::byte> key) {
    return launcher_secret{first_bytes(hmac_sha256(key).update(bytes_of(text)).finish()), {}};
  };
  if (process.launcher == "mpirun") {
    const auto key = variables("OMPI_MCA_orte_precondition_transports");
    if (key && is_random_key(*key)) return keyed(bytes_of(*key));
  }
  if (process.launcher == "pals" || process.launcher == "srun") {
    if (const auto key = first_set(variables, {"PMI_SHARED_SECRET"})) return keyed(bytes_of(*key));
  }
  if (is_loopback(root.host) && !process.several_hosts) return keyed(key_of_user(folder));
  if (!process.store.empty()) return keyed(key_in_store(parse_endpoint(process.store, "the address of the store")));
  return {first_bytes(sha256::of(bytes_of(text))),
          "devcomm: others can guess the secret of this job, made of its address and of what its launcher (" +
              process.launcher + ") sets: whoever reaches rank 0 at " + process.root + " can join it. " +
              cure_for(process.launcher) + "\n"};
}

}  // namespace devcomm::host::detail
