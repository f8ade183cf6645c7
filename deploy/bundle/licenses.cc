#include "deploy/bundle/licenses.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

namespace muster {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

// Returns the paths by which a package may list the file. /lib is now a link to /usr/lib, but the
// lists of some packages still contain paths in /lib.
std::set<std::string> NamesOf(const std::string& path) {
  constexpr std::string_view kUsr = "/usr";
  std::error_code error;
  std::set<std::string> names;
  for (const std::string& name : {path, fs::canonical(path, error).string()}) {
    names.insert(name);
    names.insert(name.starts_with("/usr/") ? name.substr(kUsr.size())
                                           : fmt::format("/usr{}", name));
  }
  return names;
}

void AddDebian(const std::set<std::string>& wanted, const PackageFolders& folders, Files* found) {
  std::error_code error;
  for (const fs::directory_entry& list : fs::directory_iterator(folders.lists, error)) {
    if (list.path().extension() != ".list") continue;
    const std::string stem = list.path().stem().string();
    const std::string package = stem.substr(0, stem.find(':'));
    const fs::path text = fs::path(folders.documents) / package / "copyright";
    std::ifstream file(list.path());
    std::string line;
    while (std::getline(file, line)) {
      if (!wanted.contains(line)) continue;
      if (fs::is_regular_file(text, error)) (*found)[package] = text.string();
      break;
    }
  }
}

// Adds the licenses of the Python packages in `site` that own a wanted file. RECORD lists the files
// of a package.
void AddPython(const fs::path& site, const std::set<std::string>& wanted, Files* found) {
  std::error_code error;
  for (const fs::directory_entry& about : fs::directory_iterator(site, error)) {
    if (about.path().extension() != ".dist-info") continue;
    const std::string package = about.path().stem().string();
    std::ifstream file(about.path() / "RECORD");
    std::string line;
    bool ours = false;
    while (!ours && std::getline(file, line))
      ours = wanted.contains((site / line.substr(0, line.find(','))).string());
    if (!ours) continue;
    for (const fs::directory_entry& text :
         fs::directory_iterator(about.path() / "licenses", error)) {
      if (text.is_regular_file(error))
        (*found)[fmt::format("{}-{}", package, text.path().filename().string())] =
            text.path().string();
    }
  }
}

// Returns the site-packages folder that contains `path`, or "".
std::string SiteOf(const std::string& path) {
  for (fs::path folder = fs::path(path).parent_path(); folder != folder.parent_path();
       folder = folder.parent_path())
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages")
      return folder.string();
  return "";
}

}  // namespace

std::map<std::string, std::string> FindLicenses(const std::map<std::string, std::string>& libraries,
                                                const PackageFolders& folders) {
  Files found;
  std::set<std::string> debian;
  std::map<std::string, std::set<std::string>> python;
  for (const auto& [name, path] : libraries) {
    const std::string whole = fs::path(path).lexically_normal().string();
    if (const std::string site = SiteOf(whole); !site.empty())
      python[site].insert(whole);
    else
      debian.merge(NamesOf(whole));
  }
  AddDebian(debian, folders, &found);
  for (const auto& [site, wanted] : python) AddPython(site, wanted, &found);
  return found;
}

}  // namespace muster
