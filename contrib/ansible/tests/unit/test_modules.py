# Copyright (c) the hugeleaf developers
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Tests the modules with a stub of the program: short pools, refused plans, a crash, another schema."""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import shutil
import stat
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from unittest import mock

import yaml
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args

# Modules clean up in it when this process exits.
REMOTE = tempfile.mkdtemp()
atexit.register(shutil.rmtree, REMOTE, True)

NAMES = ('apply', 'plan', 'undo', 'verify')
PLACE = 'ansible_collections.hugeleaf.hugeleaf.plugins.modules.'

POOL = {'id': 'pool-2M', 'what': 'pool', 'path': '/sys/pool', 'before': 0}
PLANNED = dict(POOL, after=8, state='would-change')
DONE = dict(POOL, after=8, state='done', needs={'restart': ['cache.service']})
ALREADY = dict(POOL, before=8, state='already')
SHORT = dict(POOL, after=5, state='short', shortage={'wanted': 8, 'got': 5, 'missing': 3})
FAILED = {'id': 'sysctl', 'what': 'file', 'path': '/etc/x', 'state': 'failed', 'note': 'no space'}

PLAN = '''schema = 1
made = "2026-11-28T20:40:15Z"
notes = [
    "one",
    "two",
]

[base]
# 23.5G of memory
used_bytes = 651497472 # 621M

[[service]]
name = "cache"

[[pool]]
page = "2M"
was = 0
pages = 8
'''


def module_of(name):
    return importlib.import_module(PLACE + name)


class Stub:
    """A program that returns prepared answers and records its arguments."""

    def __init__(self, folder):
        self.folder = folder
        self.path = os.path.join(folder, 'hugeleaf')
        self.answers = {}
        with open(self.path, 'w', encoding='utf-8') as file:
            file.write(
                '#!%s\n'
                'import json, os, sys\n'
                'folder = os.path.dirname(os.path.abspath(__file__))\n'
                'arguments = [a for a in sys.argv[1:] if a != "--json"]\n'
                'with open(folder + "/calls", "a") as file: file.write(json.dumps(arguments) + "\\n")\n'
                'answers = json.load(open(folder + "/answers"))\n'
                'key = next(k for k in sorted(answers, key=len, reverse=True)\n'
                '           if all(word in arguments for word in k.split()))\n'
                'status, out, err, files = answers[key].pop(0) if len(answers[key]) > 1 else answers[key][0]\n'
                'json.dump(answers, open(folder + "/answers", "w"))\n'
                'if files: open(arguments[arguments.index("--output") + 1], "w").write(files)\n'
                'sys.stdout.write(out)\n'
                'sys.stderr.write(err.replace("PLAN", arguments[-1]))\n'
                'sys.exit(status)\n' % sys.executable)
        os.chmod(self.path, stat.S_IRWXU)

    def says(self, words, status=0, errors='', output=None, plan=None, **values):
        """Adds an answer for a call with these words; the last one is repeated."""
        if output is None:
            output = json.dumps(dict({'schema': 2}, **values))
        self.answers.setdefault(words, []).append((status, output, errors, plan))
        with open(os.path.join(self.folder, 'answers'), 'w', encoding='utf-8') as file:
            json.dump(self.answers, file)

    def calls(self):
        with open(os.path.join(self.folder, 'calls'), encoding='utf-8') as file:
            return [json.loads(line) for line in file]


class Modules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program = Stub(self.folder)
        self.file = os.path.join(self.folder, 'plan.toml')
        self.program.says('apply --dry-run', steps=[PLANNED])

    def run_module(self, name, check=False, **arguments):
        arguments.setdefault('program', self.program.path)
        arguments.update(_ansible_check_mode=check, _ansible_remote_tmp=REMOTE)
        output = io.StringIO()
        module = module_of(name)
        with patch_module_args(arguments), redirect_stdout(output), self.assertRaises(SystemExit):
            module.main()
        return json.loads(output.getvalue())

    def text(self):
        with open(self.file, encoding='utf-8') as file:
            return file.read()

    def write(self, text):
        with open(self.file, 'w', encoding='utf-8') as file:
            file.write(text)

    # apply

    def test_a_new_plan_is_tried_then_written_then_applied(self):
        self.program.says('apply', steps=[DONE], id=3, to_do=['restart it'])
        result = self.run_module('apply', plan=self.file, content=PLAN)
        self.assertTrue(result['changed'])
        self.assertEqual(result['id'], 3)
        self.assertEqual(result['restart'], ['cache.service'])
        self.assertEqual(result['to_do'], ['restart it'])
        self.assertEqual(self.text(), PLAN)
        self.assertEqual(self.program.calls()[-1], ['apply', self.file])
        self.assertEqual(result['diff'][1]['before'], '0\n')
        self.assertEqual(result['diff'][1]['after'], '8\n')

    def test_a_plan_in_place_is_unchanged(self):
        self.write(PLAN)
        self.program.says('apply', steps=[ALREADY])
        result = self.run_module('apply', plan=self.file, content=PLAN)
        self.assertFalse(result['changed'])
        self.assertEqual(result['diff'], [])
        self.assertEqual(self.program.calls(), [['apply', '--dry-run', self.file], ['apply', self.file]])

    def test_check_mode_changes_nothing(self):
        result = self.run_module('apply', check=True, plan=self.file, content=PLAN)
        self.assertTrue(result['changed'])
        self.assertFalse(os.path.exists(self.file))
        self.assertEqual([call[:2] for call in self.program.calls()], [['apply', '--dry-run']])

    def test_a_refused_plan_does_not_replace_the_file(self):
        self.write('old')
        self.program.answers = {}
        self.program.says('apply --dry-run', status=3, output='', errors=(
            'hugeleaf: PLAN: the plan is for the host a, but this host is b\n  next: make a plan for this host\n'))
        result = self.run_module('apply', plan=self.file, content=PLAN)
        self.assertTrue(result['failed'])
        self.assertFalse(result['changed'])
        self.assertEqual(result['msg'], self.file + ': the plan is for the host a, but this host is b. '
                                                    'Next: make a plan for this host')
        self.assertEqual(self.text(), 'old')

    def test_a_short_pool_fails_and_counts_as_a_change(self):
        self.write(PLAN)
        self.program.says('apply', status=1, steps=[SHORT])
        result = self.run_module('apply', plan=self.file)
        self.assertTrue(result['failed'])
        self.assertTrue(result['changed'])
        self.assertIn('got 5 of 8 pages, 3 are missing', result['msg'])

    def test_a_short_pool_can_be_accepted(self):
        self.write(PLAN)
        self.program.says('apply', status=1, steps=[dict(SHORT, before=5)])
        with mock.patch.object(basic.AnsibleModule, 'warn') as warn:
            result = self.run_module('apply', plan=self.file, allow_short=True)
        self.assertNotIn('failed', result)
        self.assertFalse(result['changed'])
        self.assertIn('3 are missing', warn.call_args[0][0])

    def test_a_revoked_apply_fails_even_if_short_pools_are_accepted(self):
        self.write(PLAN)
        self.program.says('apply', status=1, steps=[dict(POOL, before=0, after=0, state='restored')], undone=True)
        result = self.run_module('apply', plan=self.file, allow_short=True, all_or_nothing=True)
        self.assertTrue(result['failed'])
        self.assertIn('--all-or-nothing', self.program.calls()[1])

    def test_steps_before_a_failure_count(self):
        self.write(PLAN)
        self.program.says('apply', status=3, steps=[DONE, FAILED], errors=(
            'hugeleaf: apply stopped at sysctl: no space\n  next: make room, then continue: hugeleaf apply x\n'))
        result = self.run_module('apply', plan=self.file)
        self.assertTrue(result['failed'])
        self.assertTrue(result['changed'])
        self.assertEqual(result['msg'],
                         'apply stopped at sysctl: no space. Next: make room, then continue: hugeleaf apply x')

    def test_a_plan_file_that_was_replaced_counts_if_the_apply_fails(self):
        self.program.says('apply', status=3, output='', errors='hugeleaf: another apply runs\n  next: wait\n')
        result = self.run_module('apply', plan=self.file, content=PLAN)
        self.assertTrue(result['failed'])
        self.assertTrue(result['changed'])
        self.assertEqual(result['msg'], 'another apply runs. Next: wait')

    def test_a_pool_shrinks_only_if_that_is_accepted(self):
        self.program.answers = {}
        self.program.says('apply --dry-run', dry_run=True, steps=[dict(PLANNED, before=40)])
        self.program.says('apply', steps=[dict(DONE, before=40)])
        for check in (True, False):
            result = self.run_module('apply', check=check, plan=self.file, content=PLAN)
            self.assertTrue(result['failed'])
            self.assertFalse(result['changed'])
            self.assertIn('/sys/pool would shrink from 40 to 8 pages', result['msg'])
            self.assertFalse(os.path.exists(self.file))
        result = self.run_module('apply', plan=self.file, content=PLAN, allow_shrink=True)
        self.assertTrue(result['changed'])

    def test_a_plan_file_that_cannot_be_written(self):
        full = OSError(28, 'No space left on device')
        with mock.patch.object(basic.AnsibleModule, 'atomic_move', side_effect=full):
            result = self.run_module('apply', plan=self.file, content=PLAN)
        self.assertFalse(result.get('changed', False))
        self.assertIn('cannot be written: No space left on device', result['msg'])

    def test_answers_that_are_none(self):
        self.write(PLAN)
        for said, words in (
            ({'output': ''}, 'printed no JSON'),
            ({'output': '{"schema"'}, 'printed no JSON'),
            ({'output': '{"schema": 9}'}, 'schema 9'),
            ({'output': '', 'status': 101}, 'status 101'),
            ({'output': '[]', 'status': 3}, 'status 3'),
        ):
            with self.subTest(words):
                self.program.answers = {}
                self.program.says('apply --dry-run', steps=[PLANNED])
                self.program.says('apply', **said)
                result = self.run_module('apply', plan=self.file)
                self.assertTrue(result['failed'])
                self.assertIn(words, result['msg'])

    def test_a_missing_program_and_a_missing_plan(self):
        result = self.run_module('apply', program='no-such-program-here', plan=self.file, content=PLAN)
        self.assertIn('is not installed', result['msg'])
        result = self.run_module('apply', plan=self.file)
        self.assertIn('does not exist', result['msg'])
        result = self.run_module('apply', plan=self.folder + '/no/plan.toml', content=PLAN)
        self.assertIn('its directory does not exist', result['msg'])

    # plan

    def test_a_plan_for_the_same_purpose_keeps_the_file(self):
        self.write(PLAN)
        again = PLAN.replace('was = 0', 'was = 8').replace('621M', '7G').replace('"one"', '"three"')
        self.program.says('plan', steps=[ALREADY], plan=again)
        result = self.run_module('plan', plan=self.file, arguments=['--bytes', '16M'])
        self.assertEqual((result['content'], result['is_new'], result['changed']), (PLAN, False, False))

    def test_a_plan_for_other_pages_or_services_is_new(self):
        self.write(PLAN)
        for old, new, step in (
            ('pages = 8', 'pages = 9', ALREADY),
            ('"cache"', '"cache # 2"', ALREADY),
            ('was = 0', 'was = 4', PLANNED),
        ):
            with self.subTest(new):
                self.program.answers = {}
                self.program.says('plan', steps=[step], plan=PLAN.replace(old, new))
                result = self.run_module('plan', plan=self.file)
                self.assertTrue(result['is_new'])
                self.assertEqual(result['content'], PLAN.replace(old, new))
                self.assertEqual(self.text(), PLAN)

    def test_a_cut_plan_fails_unless_it_is_accepted(self):
        services = [{'name': 'cache', 'short_pages': 3, 'reason': 'base pages need the memory'}]
        self.program.says('plan', status=1, services=services, steps=[PLANNED], plan=PLAN)
        result = self.run_module('plan', plan=self.file)
        self.assertTrue(result['failed'])
        self.assertIn('cache lacks 3 pages: base pages need the memory', result['msg'])
        result = self.run_module('plan', plan=self.file, allow_cut=True)
        self.assertEqual(result['cut'][0]['short_pages'], 3)

    def test_arguments_that_the_module_sets_itself_are_refused(self):
        for argument in ('--output', '--json', '--root=/x', '--tighten'):
            result = self.run_module('plan', plan=self.file, arguments=[argument])
            self.assertIn('cannot be used here', result['msg'])

    # undo

    def test_only_applies_of_the_plan_are_undone(self):
        mine = {'state': 'in force', 'plan': self.file}
        other = {'id': 3, 'state': 'in force', 'plan': '/other.toml'}
        gone = {'id': 1, 'state': 'undone', 'plan': self.file}
        self.program.says('undo --list', applies=[dict(mine, id=4), other, dict(mine, id=2), gone])
        self.program.says('undo --list', applies=[dict(mine, id=4, state='undone'), other, dict(mine, id=2), gone])
        self.program.says('undo --list', applies=[other, gone])
        for number in (4, 2):
            self.program.says('undo %s' % number, applies=[{'id': number, 'finished': True}],
                              steps=[dict(POOL, apply=number, before=8, after=0, state='restored')])
        result = self.run_module('undo', plan=self.file)
        self.assertTrue(result['changed'])
        self.assertEqual(result['undone'], [4, 2])

    def test_nothing_to_undo(self):
        self.program.says('undo --list', applies=[])
        for check in (False, True):
            result = self.run_module('undo', check=check, plan=self.file)
            self.assertEqual((result['changed'], result['undone']), (False, []))

    def test_a_dry_run_of_all_applies_is_one(self):
        applies = [{'id': number, 'state': 'in force', 'plan': self.file} for number in (2, 1)]
        self.program.says('undo --list', applies=applies)
        self.program.says('undo --dry-run --all', applies=[{'id': 2}, {'id': 1}],
                          steps=[dict(POOL, apply=2, before=8, state='would-change')])
        result = self.run_module('undo', check=True, plan=self.file)
        self.assertTrue(result['changed'])
        self.assertEqual(result['diff'][0]['after'], 'the state before apply 2\n')
        self.assertEqual(self.program.calls()[-1], ['undo', '--dry-run', '--all'])

    def test_an_undo_that_stays_open_fails(self):
        self.program.says('undo --list', applies=[{'id': 2, 'state': 'in force', 'plan': self.file}])
        self.program.says('undo --list', applies=[{'id': 1, 'state': 'in force', 'plan': self.file}])
        self.program.says('undo 2', applies=[{'id': 2, 'finished': True}],
                          steps=[dict(POOL, apply=2, before=8, after=0, state='restored')])
        step = {'apply': 1, 'id': 'mount', 'path': '/mnt/huge', 'state': 'busy', 'note': 'a process has it open'}
        self.program.says('undo 1', status=1, applies=[{'id': 1, 'finished': False}], steps=[step])
        result = self.run_module('undo', plan=self.file)
        self.assertTrue(result['failed'])
        self.assertTrue(result['changed'])
        self.assertEqual(result['undone'], [2, 1])
        self.assertIn('/mnt/huge: busy: a process has it open', result['msg'])

    def test_places_that_others_changed_are_a_warning(self):
        self.program.says('undo --list', applies=[{'id': 1, 'state': 'in force', 'plan': self.file}])
        self.program.says('undo --list', applies=[])
        step = {'apply': 1, 'id': 'sysctl', 'path': '/etc/x', 'state': 'changed-since', 'note': 'it was changed'}
        self.program.says('undo 1', status=1, applies=[{'id': 1, 'finished': True}], steps=[step])
        with mock.patch.object(basic.AnsibleModule, 'warn') as warn:
            result = self.run_module('undo', plan=self.file)
        self.assertNotIn('failed', result)
        self.assertIn('/etc/x: changed-since: it was changed', warn.call_args[0][0])

    # verify

    def test_findings_other_than_notes_fail(self):
        note = {'id': 'pool-unused', 'severity': 'note', 'text': 'idle'}
        self.program.says('verify', good=True, findings=[note])
        result = self.run_module('verify', since='-1h')
        self.assertFalse(result['changed'])
        self.assertEqual(self.program.calls()[0], ['verify', '--since=-1h'])
        self.program.answers = {}
        short = {'id': 'service-short', 'severity': 'problem', 'text': 'cache is short.', 'command': 'restart it'}
        self.program.says('verify', status=1, good=False, findings=[note, short])
        result = self.run_module('verify')
        self.assertEqual(result['msg'], 'service-short: cache is short. Next: restart it')

    # documents

    def test_documents_name_the_options_of_each_module(self):
        for name in NAMES:
            with self.subTest(name):
                module = module_of(name)
                documented = yaml.safe_load(module.DOCUMENTATION)['options']
                with mock.patch.object(module, 'AnsibleModule', side_effect=InterruptedError) as made:
                    with self.assertRaises(InterruptedError):
                        module.main()
                options = made.call_args[1]['argument_spec']
                self.assertEqual(sorted(options), sorted(documented))
                for option, spec in options.items():
                    for key in ('type', 'default', 'elements', 'choices'):
                        self.assertEqual(spec.get(key), documented[option].get(key), option)
                self.assertTrue(yaml.safe_load(module.EXAMPLES))
                self.assertTrue(yaml.safe_load(module.RETURN))


if __name__ == '__main__':
    unittest.main()
