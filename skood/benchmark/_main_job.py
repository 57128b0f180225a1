"""The main job behind ``python -m skood``.

What is heavy (scikit-learn, torch) is imported when the job runs, so that
``skood --help`` answers at once.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

__all__ = ["run_main_job"]


def run_main_job(
    id_data="digits",
    ood_data=None,
    *,
    folder=None,
    left_out=None,
    n_train=None,
    n_test=None,
    max_epochs=None,
    tpr_min=0.8,
    fpr_max=0.2,
    random_state=0,
    out=None,
    verbose=0,
):
    r"""Train a network, compare detectors on it, and tune its reject option.

    This is what ``python -m skood`` runs. A small convolutional network is trained on
    ID rows only. Every detector is fitted on its features of the training rows and
    judged on held-out ID and OOD rows, alone and as a pair with MSP. Then a reject
    option on each pair of scores is tuned on a validation part and judged on a test
    part.

    Read more in the :ref:`User Guide <main_job>`.

    Parameters
    ----------
    id_data : str, default="digits"
        The ID data: "digits", which come with scikit-learn, or the name of a folder
        of IDX files in `folder`. Without `folder`, "mnist" is downloaded.

    ood_data : str, default=None
        The OOD data, named likewise; all its rows are OOD. None: the rows of the
        classes `left_out` of the ID data.

    folder : str or path-like, default=None
        Where the folders of IDX files are; see
        :func:`~skood.datasets.load_idx_images`.

    left_out : int or sequence of int, default=None
        Classes of the ID data that are OOD. None: 8 and 9 without `ood_data`, and
        none with it.

    n_train, n_test : int, default=None
        Numbers of ID rows to train on and to hold out. None: 70 % and 30 % of them,
        but at most 7,000 and 3,000.

    max_epochs : int, default=None
        Passes over the training rows. None: as many as make 80,000 rows, but at
        least 10 and at most 40.

    tpr_min, fpr_max : float, default=0.8, 0.2
        Least share of ID rows and largest share of OOD rows to accept, in [0, 1].

    random_state : int, default=0
        Seeds the split, the network and the isolation forest.

    out : str or path-like, default=None
        Folder to write ``table.csv``, ``results.json`` and, if matplotlib is
        installed, plots to. It is made if it is not there; files of these names in it
        are replaced.

    verbose : int, default=0
        1 shows progress bars.

    Returns
    -------
    result : :class:`~sklearn.utils.Bunch`
        text : str
            The report that ``python -m skood`` prints.
        table : list of dict
            One row per method; undefined and unattainable numbers are NaN.
        options, parts, versions : dict
            What was asked for, the numbers of rows of each part, and versions of the
            software.
        accuracy : float
            Of the network, on the held-out ID rows.
        n_epochs, train_seconds, feature_seconds : int, float, float
            How long the network was trained, and how long features took.
        common_fpr : float
            The smallest FPR that all methods reach at a TPR of `tpr_min`.
        y_true, y_pred : ndarray of shape (n_held_out,)
            Labels of the held-out rows, -1 for OOD rows, and predictions.
        is_test : ndarray of shape (n_held_out,), dtype bool
            The held-out rows of the test part, on which reject options are judged.
        scores : dict of str to ndarray of shape (n_held_out,)
            Score of each detector, high for ID rows.
        classifier, detectors : TorchClassifier, dict of str to detectors
            The fitted network, and the detectors, which read its features.
        reject_options : dict of str to Bunch
            For each pair of scores `classifier` (a
            :class:`~skood.rejection.RejectOptionClassifier`), `report` (on the test
            part) and `reasons` (numbers of rejected ID and OOD rows by reason). If
            the bounds cannot be met on the validation part these are None, and
            `error` is the :class:`~skood.exceptions.InfeasibleError`.
        files : list of Path
            What was written.

    Raises
    ------
    ValueError
        If a parameter is invalid or does not fit the data, or a file is broken.
    OSError
        If a folder or file is missing or cannot be written.

    See Also
    --------
    skood.datasets.load_digits_ood : The default data.
    skood.metrics.selective_risk_at : The selective risk in the table.
    skood.rejection.RejectOptionClassifier : The reject option.

    Notes
    -----
    Everything runs on one CPU thread (the network on a GPU if there is one), so that
    seconds compare, and other work on the machine does not stall it.

    The selective risk in the table is that of the best rule on the rows it is
    computed on: a figure of merit of the scores. What a rule does on rows on which it
    was not chosen is in `reject_options`.

    Examples
    --------
    >>> from skood.benchmark import run_main_job
    >>> result = run_main_job(max_epochs=2)
    >>> result.parts["train"]
    {'id': 1010, 'ood': 0}
    >>> sorted(result.table[0])[:3]
    ['aupr_in', 'aupr_out', 'aurc']
    >>> print(result.text)  # doctest: +SKIP
    """
    from skood.benchmark._options import Options
    from skood.benchmark._parts import prepare
    from skood.benchmark._run import run

    options = Options(
        id_data=id_data,
        ood_data=ood_data,
        folder=folder,
        left_out=left_out,
        n_train=n_train,
        n_test=n_test,
        max_epochs=max_epochs,
        tpr_min=tpr_min,
        fpr_max=fpr_max,
        random_state=random_state,
        out=out,
    )
    return run(options, prepare(options), verbose=verbose)
