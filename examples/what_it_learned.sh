#!/usr/bin/env bash
# What has a discriminator learned, compared with a masked language model with the same compute? The results are in
# docs/results/answers.md.
#
#   examples/what_it_learned.sh DATA TASKS OUT [FLOPS [RESAMPLES]]
#
# DATA is English text prepared by `electra prepare`. TASKS has the folders blimp, ged, jfleg, asr-snips, and the tasks
# of docs/guides/studies.md. Two networks train at the same time, with one thread each; then Electric is trained, for
# its likelihoods. The same command resumes after an interruption.
set -euo pipefail
data=$1 tasks=$2 out=$3 flops=${4:-6e14} resamples=${5:-1000}
base=$(dirname "$0")/what_it_learned.toml
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

study() {
  electra study objectives --base "$base" --arms electra bert electric \
    --data "$data" --tasks "$tasks" --out "$out/study" --budget "$flops" \
    --seeds 1 --task-seeds 3 --suite chunking:0.1 upos:0.1 \
    --tune train.epochs=10 optimizer.learning_rate=2e-3 optimizer.layer_decay=1
}
study & study; wait # two processes share the folder; each one does the runs that the other does not

electra=$out/study/runs/electra/1/seed-0/run
masked=$out/study/runs/bert/1/seed-0/run
electric=$out/study/runs/electric/1/seed-0/run
generator=$electra/export/generator

tagger() { # NAME RUN: a tagger of wrong words, trained on texts of English learners
  [ -f "$out/$1/results.json" ] ||
    electra finetune "$2" --task ged-en-realec --data "$tasks/ged" --out "$out/$1" --seeds 1
}
analyze() { # NAME VERB ...: once
  local name=$1 verb=$2
  shift 2
  [ -f "$out/$name/$verb.json" ] || electra analyze "$verb" "$@" --resamples "$resamples" --out "$out/$name"
}

# The longest: each token of each sentence is masked once.
analyze minimal-pairs minimal-pairs "$electra" "$generator" "$masked" "$electric" --data "$tasks/blimp" &

tagger tagger-electra "$electra"
tagger tagger-masked "$masked"
jfleg=(--tune "$tasks/jfleg/dev" --data "$tasks/jfleg/test")
analyze detect-learners detect "$electra" --data "$tasks/ged/en_realec_dev.tsv"
analyze detect-jfleg detect "$electra" "$out/tagger-electra" "$out/tagger-masked" "${jfleg[@]}"
analyze calibrate calibrate "$electra" --data "$data" --errors "$tasks/ged/en_realec_dev.tsv" --prior .05
analyze parts-of-speech parts-of-speech "$electra" --data "$tasks/pos-ud-english-ewt/dev.conllu" \
  --frequencies "$data" --threshold .15
analyze rescore rescore "$electra" "$generator" "$masked" "$electric" \
  --data "$tasks/asr-snips/valid.conf.csv" --references "$tasks/asr-snips/valid.supconf.csv"
text=(--text "$tasks/pos-ud-english-ewt/dev.conllu" --chunks "$tasks/chunking-conll2000/train.txt")
analyze compare-masked compare "$electra" "$masked" "${text[@]}"
analyze compare-generator compare "$electra/export/discriminator" "$generator" "${text[@]}"
analyze generator generator "$electra" --data "$data" --checkpoints
wait

electra report "$electra" "$masked" "$electric" "$out"/*/ --out "$out/report.html"
