#!/usr/bin/env bash
# Installs clients of LibreTranslate and DeepL, and the translator of Firefox, into the folder $1, with the Python $2: those that are commands, or that
# need other versions than the tests do. Without a network, their tests are skipped.
set -euo pipefail
mkdir -p "$1"
cd "$1"
install() {
  [ -d "$1" ] || "$python" -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --target "$1" "${@:2}" || rm -rf "$1"
}
python=$2
install deepl-1.30.0 --no-deps deepl==1.30.0
install deepl-i18n-1.0.0 --no-deps deepl-i18n==1.0.0
# Only what an import of its translators needs: the tests have the rest.
install deepl-haystack-0.4.2 --no-deps deepl-haystack==0.4.2 haystack-ai==3.4.1 distro==1.9.0 docstring-parser==0.18.0 \
  filetype==1.2.0 lazy-imports==1.2.0 more-itertools==11.2.1 posthog==7.91.1 tenacity==9.2.1
install transpolibre-0.8.15 transpolibre==0.8.15
if [ ! -d node_modules ] && command -v npm >/dev/null; then
  npm install --no-audit --no-fund --no-save --silent --prefix . libretranslate@1.0.1 translate@3.1.0 deepl-node@1.28.0 \
    @browsermt/bergamot-translator@0.4.9 @formatjs/icu-messageformat-parser@3.5.23
fi
for each in deepl-1.30.0 deepl-i18n-1.0.0 deepl-haystack-0.4.2 transpolibre-0.8.15 node_modules; do
  [ -d "$each" ] || echo "install_clients.sh: $each cannot be installed; its tests are skipped" >&2
done
